"""The `lingua` command."""
