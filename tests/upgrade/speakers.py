"""A program: people who talk, alone and in rooms, until SIGTERM; they write down what they hear.

It runs with the SDK of any release. SPEAKERS in the environment is a JSON object:

    name        that of the release, with which the names of all begin
    gateways    addresses for the SDK
    pinned      each who talks alone is told one of them; otherwise all
    web         addresses of web entries
    people, rooms, seed
    heard       a file: how many outcomes each has had so far, by name
    history     a file: all that was written down, at the end
"""

import asyncio
import json
import os
import random
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.robustness.traffic.client import Talker
from tests.robustness.traffic.rooms import CASTS, LiveRoom

# Every third of them wants partial texts, so often at most.
PARTIALS_MS = 200
# For the last results, and the ends of rooms.
ENDED_S = 60.0
_TELL_S = 0.2


async def run(options: dict[str, Any]) -> dict[str, Any]:
    """They talk until told to stop; returns all that was written down."""
    rng = random.Random(options["seed"])
    gateways: list[str] = options["gateways"]
    everywhere = ",".join(gateways)
    talkers = [
        Talker(
            f"{options['name']}-client-{at}",
            gateways[at % len(gateways)] if options["pinned"] else everywhere,
            random.Random(rng.random()),
            partial_interval_ms=0 if at % 3 else PARTIALS_MS,
        )
        for at in range(options["people"])
    ]
    rooms = [
        LiveRoom(
            f"{options['name']}-room-{at}",
            CASTS[at % len(CASTS)],
            everywhere,
            options["web"],
            random.Random(rng.random()),
        )
        for at in range(options["rooms"])
    ]
    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    tasks = [
        *(asyncio.create_task(each.talk()) for each in talkers),
        *(asyncio.create_task(each.run()) for each in rooms),
    ]
    telling = asyncio.create_task(_tell(talkers, rooms, Path(options["heard"])))
    await enough.wait()
    for one in (*talkers, *rooms):
        one.stop()
    await asyncio.wait(tasks, timeout=ENDED_S)
    for person, task in zip((*talkers, *rooms), tasks, strict=True):
        if not task.done():
            task.cancel()
            person.history.lost = f"STUCK: not closed within {ENDED_S:.0f} s"
    await asyncio.gather(*tasks, return_exceptions=True)
    telling.cancel()
    return {
        "clients": [asdict(each.history) for each in talkers],
        "rooms": [asdict(each.history) for each in rooms],
    }


async def _tell(talkers: list[Talker], rooms: list[LiveRoom], path: Path) -> None:
    """Writes down again and again how many outcomes each has had."""
    new = path.with_suffix(".new")
    while True:
        heard = {each.history.name: len(each.history.outcomes()) for each in talkers}
        for room in rooms:
            for speaker in room.history.speakers:
                events = speaker.events
                heard[speaker.name] = sum(each["what"] == "receipt" for each in events)
            if not room.history.speakers:
                heard[room.history.name] = 0
        new.write_text(json.dumps(heard))
        new.rename(path)
        await asyncio.sleep(_TELL_S)


def main() -> None:
    """Runs them as the environment says."""
    options = json.loads(os.environ["SPEAKERS"])
    told = asyncio.run(run(options))
    Path(options["history"]).write_text(json.dumps(told))
