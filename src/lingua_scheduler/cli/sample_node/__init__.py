"""What `lingua sample-node` runs: a node that measures speech and plays it back.

`lingua up --demo` and `make run` start it. May import only the SDK.
"""
