"""Engines that speak. Each is imported only when it is chosen."""
