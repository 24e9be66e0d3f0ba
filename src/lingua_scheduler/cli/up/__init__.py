"""`lingua up`: the whole scheduler on this machine, service by service."""
