"""What every part of the package uses and what knows nothing of MDPs: checks, files, memory, messages, types."""
