"""Programs that measure the library; those of this folder measure its speed."""
