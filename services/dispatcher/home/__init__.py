"""The jobs that this instance is the home of: the shell around their machines.

May import `job`, `nodes` and `pool`; must not import `gateways`.
"""
