"""Robustness: traffic is made, faults are injected, and what clients and nodes saw is checked.

`traffic/` generates load and records what it saw; `faults/` injects faults; `validate/` is pure and
checks the records against the promises (docs/architecture.md); `world.py` has all processes and the
network between them; `rounds.py` runs one round, and `report.py` reports the outcome. Nothing here
asks the scheduler for its own view, except whether all slots are free again.

    python -m tests.robustness --minutes 30 --seed 1
"""
