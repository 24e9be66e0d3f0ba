"""Robustness: traffic is made, faults are injected, and what clients and nodes saw is checked.

`traffic/` talks and works, and writes down what it saw; `faults/` strikes; `validate/` is pure and
checks the records against the promises (docs/architecture.md); `world.py` is all processes and the network
between them; `rounds.py` puts one round together, and `report.py` tells what came out. Nothing here
asks the scheduler how it did, but for one thing: whether all slots are back.

    python -m tests.robustness --minutes 30 --seed 1
"""
