"""Engines that translate text, and the installation of their programs."""
