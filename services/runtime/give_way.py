"""Long batches let others run.

for at, entry in enumerate(entries):
    if is_turn_of_others(at):
        await asyncio.sleep(0)
    ...
"""

# Entries of a batch that are worked off without a break: a few milliseconds of any kind.
AT_ONCE = 20


def is_turn_of_others(at: int) -> bool:
    """Whether the event loop should serve everybody else before the entry at this place."""
    return at % AT_ONCE == 0 and at > 0
