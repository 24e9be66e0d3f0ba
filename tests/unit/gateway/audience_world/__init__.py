"""A model of a room in Redis, and listeners of one gateway in it."""
