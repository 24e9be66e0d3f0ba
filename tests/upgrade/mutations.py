"""Changes that no release may have, in copies of the sources: an upgrade to them is noticed.

    python -m tests.upgrade.mutations [--only WORDS]

Each copy works by itself, but not beside the last release. The working tree is never touched.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.robustness.mutations import copied
from tests.upgrade.deployment import SPLIT, Deployment
from tests.upgrade.releases import (
    NoReleaseError,
    Release,
    UnknownReleaseError,
    new_release,
    old_release,
)
from tests.upgrade.rolling import Rolling

FORMAT = "services/runtime/redis/data_format.py"


@dataclass(frozen=True)
class Change:
    """An incompatible change.

    Attributes:
        what: it does.
        edits: file, text, and what replaces it wherever it is in the file.
    """

    what: str
    edits: tuple[tuple[str, str, str], ...]


CHANGES = (
    Change(
        "another format, without a release between",
        ((FORMAT, "WRITES = 1", "WRITES = 2"), (FORMAT, "READS_TO = 1", "READS_TO = 2")),
    ),
    Change(
        "the packed record of a node has another layout",
        (
            ("lua/lib/live.lua", "'<ddddddHHBBBBBI4B'", "'>ddddddHHBBBBBI4B'"),
            ("services/pool_service/fleet/live.py", '"<ddddddHHBBBBBIB"', '">ddddddHHBBBBBIB"'),
        ),
    ),
    Change(
        "a field of sessions has another name",
        (
            ("lua/take_session.lua", "^cut:", "^part:"),
            ("lua/take_session.lua", "'cut:'", "'part:'"),
            ("lua/lib/session.lua", "'cut:'", "'part:'"),
        ),
    ),
    Change(
        "leases are under another key",
        (("lua/lib/slots.lua", ":running'", ":runs'"),),
    ),
)


def spoil(tree: Path, change: Change) -> None:
    """Makes the change in a copy."""
    for file, old, new in change.edits:
        path = tree / file
        text = path.read_text()
        if old not in text:
            sys.exit(f"{file} has changed: '{change.what}' does not fit")
        path.write_text(text.replace(old, new))


async def noticed(old: Release, new: Release) -> str:
    """How an upgrade and a roll-back show that something is wrong; "" if they do not."""
    with Deployment(SPLIT, old) as deployment:
        rolling = Rolling(deployment, old, new, is_patient=False)
        await rolling.begin()
        try:
            for release in (new, old):
                await rolling.roll(release)
                if not rolling.stages[-1].until:
                    break
        except AssertionError as error:
            said = [line for line in str(error).splitlines() if line.strip()]
            return f"{said[0]} {said[-1]}"
        outcome = await rolling.end()
    return str(outcome.violations[0]) if outcome.violations else ""


def main() -> None:
    """Tries all changes; ends with 1 if one is not noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="changes with these words")
    chosen = [each for each in CHANGES if parser.parse_args().only in each.what]
    try:
        old, missed = old_release(), 0
    except (NoReleaseError, UnknownReleaseError) as error:
        sys.exit(f"no release to upgrade from: {error}")
    for change in chosen:
        with tempfile.TemporaryDirectory(prefix="lingua-changes-") as folder:
            tree = copied(Path(folder))
            spoil(tree, change)
            started = time.monotonic()
            how = asyncio.run(noticed(old, new_release(tree)))
            missed += not how
            took = time.monotonic() - started
            print(f"{change.what}: {how[:300] or 'NOT NOTICED'} ({took:.0f} s)", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
