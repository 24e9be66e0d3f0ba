"""The last release beside the working tree: rolling upgrades and roll-backs under load.

May import tests/robustness, whose traffic and validation it uses.
"""
