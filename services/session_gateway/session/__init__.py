"""The pure core of a session: events in, effects out.

No I/O, no clock, no logging: every function is told the time. May import the contract and
`runtime.contract`; must not import `live`, `store` or `dispatcher`, nor asyncio, grpc or redis.
"""
