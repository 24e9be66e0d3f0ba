"""Two people, two languages, real speech: what `make run-real` shows.

Ana speaks English and Ben Spanish, with synthetic voices. `lingua speak` sends their speech at the
pace of speech. The scheduler cuts it and assigns it to two interpreter nodes (separate processes),
which recognise it, translate it and speak the translation. Meanwhile and afterwards, two people can
talk through the talk page. With --room, one speaks and several listen instead: see real_room.
"""

import argparse
import asyncio
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interpreter_node import parts
from interpreter_node.checksums import BadDownloadError
from interpreter_node.engines import MissingPartError
from interpreter_node.fetching import fetch, needed_parts
from interpreter_node.settings import Settings, models_folder, read_settings
from interpreter_node.translators import apertium, pivot
from interpreter_node.translators.debian import get_apertium
from interpreter_processes import LINGUA, await_nodes, end_nodes, start_nodes
from real_room import HEADING, hold_tour, room_page, room_pages
from recorded_speech import speakers_voice, write_speech

from lingua_scheduler.cli.commands.up import exports
from lingua_scheduler.cli.up.errors import PartFailedError
from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from lingua_scheduler.cli.up.talk_page import talk_page
from lingua_scheduler.sdk import RoomError
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.redis.embedded.binary import EmbeddedRedisError

# One job at a time per node: the machine may have two cores.
NODES = ("amber", "birch")
SETTINGS = {
    # A short wait for a pause, but longer than a speaker's own pauses.
    "LINGUA_PAUSE_MS": "2000",
    "LINGUA_LOG_LEVEL": "error",
    # On a busy machine, the nodes need longer than nodes usually may.
    "LINGUA_JOB_TIMEOUT_MS": "60000",
    "LINGUA_RUNNING_LEASE_MS": "70000",
    "LINGUA_RESULT_DEADLINE_MS": "90000",
}

# What Apertium translates for the engines that use it.
DIRECTIONS = {"apertium": apertium.DIRECTIONS, "pivot": pivot.APERTIUM}

FAILURES = (
    MissingPartError,
    BadDownloadError,
    RuntimeError,
    RoomError,
    TimeoutError,
    PartFailedError,
    EmbeddedRedisError,
    SettingsError,
)


@dataclass(frozen=True)
class Scene:
    """One speaker's text. Several texts have a pause between them, within the sentence."""

    who: str
    src: str
    tgt: str
    texts: tuple[str, ...]
    note: str = ""


SCENES = (
    Scene(
        *("Ana", "en", "es"),
        ("Good morning. I would like to buy two tickets for the train to Madrid.",),
    ),
    Scene(
        *("Ben", "es", "en"),
        ("Buenos días. El tren para Madrid sale a las ocho de la mañana.",),
    ),
    Scene(
        *("Ana", "en", "es"),
        ("We want to arrive before ten because", "my sister works in a hospital in the city."),
        "Ana pauses in the middle of a sentence. The node holds it, and the next node is the same",
    ),
    Scene(
        *("Ben", "es", "en"),
        (
            "Mi hermana vive en un pueblo pequeño cerca del mar. En verano hace mucho calor y las"
            " calles están vacías. Vamos a visitar la catedral y después el museo. Mañana tenemos"
            " una reunión importante con los clientes.",
        ),
        "Ben talks for longer than ten seconds. It is cut in the middle, and comes out whole",
    ),
    Scene(*("Ana", "en", "es"), ("Thank you very much for your help, and see you soon.",)),
)


def record(scenes: tuple[Scene, ...], folder: Path) -> dict[Scene, list[Path]]:
    """Write the speech to WAV files."""
    voice = speakers_voice()
    return {
        scene: [
            write_speech(
                folder / f"{number}-{scene.who.lower()}-{at}.wav",
                text,
                language=scene.src,
                voice=voice,
            )
            for at, text in enumerate(scene.texts, start=1)
        ]
        for number, scene in enumerate(scenes, start=1)
    }


def play(
    number: int, scene: Scene, files: list[Path], folder: Path, environ: Mapping[str, str]
) -> bool:
    """Run `lingua speak`; returns whether everything was translated."""
    said = " ... ".join(scene.texts)
    print(f"\n{scene.who} says: {said}")
    if scene.note:
        print(f"({scene.note}.)")
    pause = ["--pause", "2.5"] if len(files) > 1 else []
    command = [
        *("speak", *map(str, files), "--from", scene.src, "--to", scene.tgt, *pause),
        *("--save", str(folder / f"{number}-for-{'ben' if scene.who == 'Ana' else 'ana'}")),
    ]
    return subprocess.run([*LINGUA, *command], env=dict(environ)).returncode == 0


def set_up(settings: Settings) -> tuple[Scene, ...]:
    """Download missing models; returns the scenes that can be played.

    Raises:
        MissingPartError, BadDownloadError: a model could not be downloaded.
    """
    # The speakers have voices of Kokoro, whatever the nodes have.
    wanted = dict.fromkeys((*needed_parts(settings), *parts.needed("", "kokoro", "")))
    refused = fetch(tuple(wanted), settings.models, environ=os.environ, say=print)
    return tuple(scene for scene in SCENES if scene.src == "en" or parts.SPANISH not in refused)


def introduce(scheduler: LocalScheduler, *, with_room: bool) -> None:
    """Show the address of the page, and what follows."""
    if page := talk_page(scheduler):
        print("\n".join(page.words))
        print("       Two people can talk English and Spanish there, as soon as the nodes run.")
        print(f"Room   {room_page(page.url)}")
        print("       One speaks there, and others listen.\n")
    print(HEADING if with_room else __doc__)


def hold_conversation(
    scenes: tuple[Scene, ...], folder: Path, environ: Mapping[str, str]
) -> tuple[bool, Path]:
    """Play all scenes; returns whether everything was translated, and the last recording."""
    recorded = record(scenes, folder / "said")
    played = [
        play(number, scene, files, folder, environ)
        for number, (scene, files) in enumerate(recorded.items(), start=1)
    ]
    print(f"\nThe translated speech is in {folder}, what was said in {folder / 'said'}.")
    return all(played), recorded[scenes[-1]][-1]


def visit_museum(scheduler: LocalScheduler, folder: Path) -> tuple[bool, Path]:
    """Hold the tour; returns whether everybody got everything, and the last recording."""
    good, room, recording = asyncio.run(hold_tour(scheduler.addresses("gateway"), folder, print))
    print(f"The translated speech is in {folder}, what was said in {folder / 'said'}.\n")
    for line in asyncio.run(room_pages(scheduler, room)):
        print(line)
    return good, recording


def stay_up(scheduler: LocalScheduler, recording: Path, folder: Path, until: float) -> None:
    """Show what to do with the scheduler, and keep it running until then or Ctrl-C."""
    if page := talk_page(scheduler):
        print(f"It stays up. To talk, open {page.url}")
    print("In another terminal:")
    if not shutil.which("lingua"):
        print(f"  source {Path(sys.executable).with_name('activate')}")
    for line in exports(scheduler):
        print(line)
    print(f"  lingua speak {recording} --from en --to es --save {folder}")
    print("  lingua speak --mic --from en --to es --save DIR    (with a microphone)")
    print("Ctrl-C ends it." if until == math.inf else "It ends by itself.")
    try:
        scheduler.wait(None if until == math.inf else max(0.0, until - time.monotonic()))
    except KeyboardInterrupt:
        print("Ending.")


def run(folder: Path, *, with_room: bool) -> int:
    """Run everything; returns 0 only if everything was translated."""
    until = time.monotonic() + float(os.environ.get("RUN_SECONDS") or "inf")
    # The nodes read the same variables.
    settings = read_settings([], os.environ)
    if settings.mt in DIRECTIONS:
        get_apertium(os.environ, print, DIRECTIONS[settings.mt])

    def log(name: str, line: str) -> None:
        print(f"{name} | {line}", file=sys.stderr)

    with (
        tempfile.TemporaryDirectory(prefix="lingua-") as tokens,
        LocalScheduler(environ={**SETTINGS, **os.environ}, on_log=log) as scheduler,
    ):
        introduce(scheduler, with_room=with_room)
        scenes = set_up(settings)
        if len(scenes) < len(SCENES) and not with_room:
            print("So only Ana can be understood: Ben's part is left out.")
        environ = {
            **os.environ,
            "LINGUA_GATEWAY_ADDRESS": scheduler.addresses("gateway"),
            "LINGUA_POOL_ADDRESS": scheduler.addresses("pool"),
        }
        nodes = start_nodes(NODES, scheduler.address("dispatcher"), tokens=Path(tokens))
        try:
            await_nodes(nodes, environ)
            print(f"The scheduler runs, with the interpreter nodes {' and '.join(NODES)}.")
            good, recording = (
                visit_museum(scheduler, folder)
                if with_room
                else hold_conversation(scenes, folder, environ)
            )
            stay_up(scheduler, recording, folder, until)
            return 0 if good else 1
        finally:
            end_nodes(nodes)


def main() -> int:
    """The exit code of `run`, 1 if a part is missing, or 130 if Ctrl-C ended the conversation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--room", action="store_true", help="one speaks, several listen")
    with_room = parser.parse_args().room
    # Unbuffered, even in a pipe.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # Clean up, however the program is ended.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    name = "room" if with_room else "conversation"
    folder = Path(os.environ.get("OUT") or models_folder(os.environ).parent / name)
    try:
        return run(folder.absolute(), with_room=with_room)
    except FAILURES as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
