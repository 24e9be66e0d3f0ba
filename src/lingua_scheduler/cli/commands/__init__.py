"""One module per command of `lingua`, which `app` loads when the command is called.

May import every other part of `cli`; only `app` imports these modules.
"""
