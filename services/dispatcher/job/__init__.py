"""The pure job machine: one job from its submission to its end.

No I/O, no clock, no logging. Imports nothing of the other folders, nor asyncio, grpc or redis.
"""
