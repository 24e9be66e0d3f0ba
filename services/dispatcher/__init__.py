"""Node streams, the job machine and the relay between instances."""
