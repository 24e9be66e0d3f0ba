"""Engines that turn speech into text. Each is imported only when it is chosen."""
