"""The `lmerge` command."""
