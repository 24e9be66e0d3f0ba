"""Gateways: their Submit streams, and the jobs of other homes that they follow here.

May import every other folder of the dispatcher. Only `service` and `main` import it.
"""
