"""Lets other tasks run while a task works through a long batch.

for at, entry in enumerate(entries):
    if should_yield(at):
        await asyncio.sleep(0)
    ...
"""

# Entries to process without a break: at most a few milliseconds of work.
ENTRIES_PER_TURN = 20


def should_yield(at: int) -> bool:
    """Whether to let other tasks run before processing the entry at this position."""
    return at % ENTRIES_PER_TURN == 0 and at > 0
