"""What the console knows of nodes, jobs and instances: bounded, in memory.

Pure: no I/O and no clock; times are given. May import the generated code and the rules of the
contract, and nothing else.
"""
