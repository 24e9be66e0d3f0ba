"""Gateways: their Submit streams, and jobs they follow that have another home.

May import every other folder of the dispatcher; only `service` and `main` import it.
"""
