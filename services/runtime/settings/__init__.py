"""Settings from the environment: fields, defaults, checks.

`settings` reads them; `groups` lists the groups, one file (`*_fields`) per topic. May import
`contract`, `errors` and `addresses`; every other part of the runtime may import it.
"""
