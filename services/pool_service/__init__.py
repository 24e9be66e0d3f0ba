"""Nodes, pools, selection, turn affinity and reservation: a stateless face of the Lua scripts."""
