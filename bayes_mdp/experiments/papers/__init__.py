"""Published experiments, one file each: `reproduce` finds them by name."""
