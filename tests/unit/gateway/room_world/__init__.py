"""A room on a virtual clock: gateways die, jobs fail, members come, go and change their language.

The cores of the sessions are real. Redis is the model that tests/lua compares with the scripts.
`world` runs it, `speaker` has a speaker with its client and its gateway, `nodes` has the jobs.
"""
