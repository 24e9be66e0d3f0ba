"""Clients of the three services, as the commands use them. Must not import `commands`."""
