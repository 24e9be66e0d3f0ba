"""How nodes, jobs and sessions look on a terminal. Must not import `commands` or `clients`."""
