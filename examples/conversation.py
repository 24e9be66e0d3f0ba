"""A conversation over the real path: what `make run` shows.

Redis, the services, the nodes (processes of their own) and every call are real. Ana and Ben are
tones, streamed by the client SDK at the pace of speech. The nodes measure what they hear, and take
a tenth of its time for that; they translate nothing.
"""

import asyncio
import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from voices import CHUNK_MS, SILENCE_S, chunks, speech, write_wav

from lingua_scheduler.cli.live_line import LiveLine
from lingua_scheduler.cli.options import Options
from lingua_scheduler.cli.output import duration
from lingua_scheduler.cli.pool_client import PoolClient
from lingua_scheduler.cli.sdk_access import client_token, node_token, tls_of
from lingua_scheduler.cli.up import LocalScheduler
from lingua_scheduler.cli.up_command import exports
from lingua_scheduler.sdk import (
    Accepted,
    Event,
    Finalized,
    Missing,
    Outcome,
    PartialText,
    Reason,
    Result,
    ResultKind,
    Retrying,
    Session,
    SessionError,
)
from lingua_scheduler.services.runtime.settings import load_settings

NODES = {"amber": "zh,en", "birch": "zh,en", "cedar": "en,es"}
# How high they speak, in Hz, and the languages from and to which.
VOICES = {"Ana": (220, ("zh", "en")), "Ben": (330, ("en", "zh"))}
WHO = {direction[0]: who for who, (_, direction) in VOICES.items()}
CUT_BY = {
    Reason.IS_FINAL: "final",
    Reason.TIMEOUT: "pause",
    Reason.INTERRUPTED: "barge-in",
    Reason.MAX_DURATION: "too long",
}
# For the nodes to connect, and for all of the conversation; a busy machine needs longer.
NODES_WITHIN_S = 20.0
TALK_WITHIN_S = 120.0

# Shorter than the defaults, so that nobody has to talk for long to be cut.
SETTINGS = {
    "LINGUA_MAX_DURATION_MS": "3000",
    "LINGUA_PAUSE_MS": "800",
    # A killed node does not come back here, so there is no use in waiting long for it.
    "LINGUA_NODE_RECONNECT_GRACE_MS": "1000",
    "LINGUA_LOG_LEVEL": "error",
}

Nodes = dict[str, "subprocess.Popen[bytes]"]


class Talk:
    """Ana and Ben in one session. Prints each utterance when it is delivered."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.outcomes: list[Outcome] = []
        self.wrong = 0
        self.on_accepted: Callable[[Accepted], None] | None = None
        self._cuts: dict[int, Reason] = {}
        self._taken = 0
        self._over = False
        self._changed = asyncio.Event()
        self._line = LiveLine(shown=sys.stdout.isatty())

    async def say(self, who: str, seconds: float, *, ends: bool = True) -> None:
        """Speaks; with `ends` there is silence after it, and the app says that it is all."""
        hertz, direction = VOICES[who]
        start = time.monotonic()
        for number, chunk in enumerate(chunks(speech(seconds, hertz, ends=ends)), start=1):
            await asyncio.sleep(start + number * CHUNK_MS / 1000 - time.monotonic())
            await self.session.send(chunk, direction=direction)
            self._line.show(f"{who} speaks, {time.monotonic() - start:.1f} s")
        if ends:
            await self.session.finish()

    async def delivered(self) -> list[Outcome]:
        """Waits for all that was said; gives what has been delivered since it was asked last."""
        await self.session.drained()
        # Not by the events that were heard: they may still wait to be read.
        while len(self.outcomes) < self.session.counts.utterances and not self._over:
            self._changed.clear()
            await self._changed.wait()
        # Raises where it ended with a loss.
        await self.session.drained()
        new, self._taken = self.outcomes[self._taken :], len(self.outcomes)
        return new

    async def hear(self) -> None:
        """Shows all that happens, until the session is over."""
        # A loss is raised by whatever is said or awaited next.
        with contextlib.suppress(SessionError):
            async for event in self.session.events():
                self._on_event(event)
                self._changed.set()
        self._over = True
        self._changed.set()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, PartialText):
            self._line.show(f"{WHO[event.src]} ... {event.texts.source}")
        elif isinstance(event, Finalized):
            self._cuts[event.index] = event.reason
        elif isinstance(event, Accepted) and self.on_accepted is not None:
            self.on_accepted(event)
        elif isinstance(event, Retrying):
            self.note(f"attempt {event.attempt} ended: {event.message}")
        elif isinstance(event, Result | Missing):
            self.outcomes.append(event)
            self._show(event)

    def _show(self, outcome: Outcome) -> None:
        self._line.clear()
        cut = self.cut_of(outcome)
        head = f"{WHO[outcome.src]} {outcome.index:>2}  {CUT_BY.get(cut, cut.name.lower()):<8}"
        if isinstance(outcome, Missing):
            self.wrong += 1
            print(f"{head}  MISSING, {outcome.reason}: {outcome.message}")
            return
        took = outcome.timings
        tries = "1 try  " if outcome.attempts == 1 else f"{outcome.attempts} tries"
        print(
            f"{head}  {outcome.node_id:<5}  {tries}  audio {duration(took.audio_ms)}, hangover"
            f" {duration(took.hangover_ms)}, dispatch {duration(took.dispatch_ms)}, node"
            f" {duration(took.node_ms)}, deliver {duration(took.deliver_ms)}"
        )
        if outcome.kind is ResultKind.TRANSLATED:
            joined = f" (with {', '.join(map(str, outcome.joined))})" if outcome.joined else ""
            print(f"        {outcome.texts.source} -> {outcome.texts.translated}{joined}")
        else:
            print(f"        ({outcome.kind.name.lower()})")

    def cut_of(self, outcome: Outcome) -> Reason:
        """Why it was cut."""
        return self._cuts.get(outcome.index, Reason.UNSPECIFIED)

    def note(self, text: str) -> None:
        """A line between the utterances."""
        self._line.clear()
        print(f"      {text}")

    def check(self, true: bool, what: str) -> None:
        """Says where something that must be true is not, and counts it."""
        if not true:
            self.wrong += 1
            self.note(f"IT IS NOT SO: {what}")

    def check_whole(self, parts: list[Outcome], cut: Reason, seconds: float) -> None:
        """That a sentence was cut in parts for this reason, and came out whole on one node."""
        *held, last = parts
        self.check(
            bool(held) and all(self.cut_of(part) is cut and is_kind(part, "HELD") for part in held),
            f"the parts before the last are cut by {cut.name} and held",
        )
        self.check(len({node_of(part) for part in parts}) == 1, "the parts are on one node")
        indexes = tuple(part.index for part in held)
        self.check(isinstance(last, Result) and last.joined == indexes, "the parts are joined")
        heard = last.texts.source if isinstance(last, Result) else ""
        self.check(heard.startswith(f"{seconds + SILENCE_S:.1f} s"), "nothing of it is lost")


def is_kind(outcome: Outcome, name: str) -> bool:
    """Whether it is a result of this kind."""
    return isinstance(outcome, Result) and outcome.kind.name == name


def node_of(outcome: Outcome) -> str:
    """Who did it."""
    return outcome.node_id if isinstance(outcome, Result) else ""


async def converse(talk: Talk, nodes: Nodes) -> None:
    """The conversation, and what is to be seen in it."""
    limits = talk.session.limits
    await talk.say("Ana", 1.2)
    await talk.say("Ben", 1.0)
    await talk.delivered()

    talk.note("Ana talks for long: what is cut stays with the node that has the beginning")
    long = 2.2 * limits.max_duration_ms / 1000
    await talk.say("Ana", long)
    talk.check_whole(await talk.delivered(), Reason.MAX_DURATION, long)

    talk.note("Ana pauses in the middle of a sentence: the node holds the audio, and says so")
    await talk.say("Ana", 1.0, ends=False)
    await asyncio.sleep(limits.pause_ms / 1000 + 0.4)
    await talk.say("Ana", 0.8)
    talk.check_whole(await talk.delivered(), Reason.TIMEOUT, 1.8)

    talk.note("Ben interrupts Ana, who then goes on")
    await talk.say("Ana", 1.0, ends=False)
    await talk.say("Ben", 0.6)
    await talk.say("Ana", 0.8)
    said = await talk.delivered()
    talk.check([WHO[each.src] for each in said] == ["Ana", "Ben", "Ana"], "Ben is in between")
    talk.check_whole([each for each in said if WHO[each.src] == "Ana"], Reason.INTERRUPTED, 1.8)

    talk.note("the next node that takes a job is killed with it")
    killed: list[str] = []

    def kill(accepted: Accepted) -> None:
        if not killed:
            killed.append(accepted.node_id)
            nodes[accepted.node_id].send_signal(signal.SIGKILL)
            talk.note(f"{accepted.node_id} is dead")

    talk.on_accepted = kill
    # As long as it may be: the node must not be done with it before the signal comes.
    await talk.say("Ana", limits.max_duration_ms / 1000 - SILENCE_S)
    await talk.say("Ben", 0.6)
    moved, *after = await talk.delivered()
    talk.check(isinstance(moved, Result) and moved.attempts == 2, "it has run twice")
    talk.check(node_of(moved) not in ("", *killed), "it has run elsewhere")
    talk.check([WHO[each.src] for each in after] == ["Ben"], "the conversation goes on")


async def talk_at(address: str, nodes: Nodes) -> Talk:
    """Opens the session, and closes it when all has been said and delivered."""
    settings = load_settings()
    session = Session(
        address,
        a="zh",
        b="en",
        require_tts=True,
        partial_interval_ms=100,
        tls=tls_of(settings),
        token=client_token(settings),
    )
    talk = Talk(session)
    async with asyncio.timeout(TALK_WITHIN_S), session:
        hearing = asyncio.create_task(talk.hear())
        await converse(talk, nodes)
    await hearing
    talk.check(
        [each.index for each in talk.outcomes] == list(range(len(talk.outcomes))),
        "every index came once, in order",
    )
    talk.check(
        all(node_of(each) != "cedar" for each in talk.outcomes),
        "cedar has no zh, so none of it went there",
    )
    return talk


def hold_conversation(address: str, nodes: Nodes) -> bool:
    """Whether anything was not as it must be."""
    started = time.monotonic()
    try:
        talk = asyncio.run(talk_at(address, nodes))
    except TimeoutError:
        print(f"\nThe conversation was not over within {TALK_WITHIN_S:g} s.")
        return True
    except SessionError as error:
        print(f"\nThe conversation failed: {error}.")
        return True
    took = time.monotonic() - started
    print(f"\nDone in {took:.0f} s: {len(talk.outcomes)} utterances, {talk.wrong} not as expected.")
    return talk.wrong > 0


def token_option(name: str, folder: Path) -> list[str]:
    """The token of a node, in a file, where this process can sign one."""
    token = node_token(load_settings(), name)
    if not callable(token):
        return []
    file = folder / f"{name}.token"
    file.touch(mode=0o600)
    file.write_text(str(token()))
    return ["--token-file", str(file)]


def start_nodes(address: str, folder: Path) -> Nodes:
    """The sample nodes, each a process that ends with this one."""
    script = Path(__file__).with_name("sample_node.py")
    return {
        name: subprocess.Popen(
            [
                *(sys.executable, str(script), "--id", name, "--langs", langs),
                *("--dispatcher", address, "--until-eof"),
                *token_option(name, folder),
            ],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name, langs in NODES.items()
    }


def await_nodes(address: str) -> None:
    """Returns when the pool service knows all sample nodes."""
    with PoolClient.opened(Options(addresses={"pool": address})) as pool:
        deadline = time.monotonic() + NODES_WITHIN_S
        while len(pool.list_nodes().nodes) < len(NODES):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the sample nodes did not connect within {NODES_WITHIN_S:g} s")
            time.sleep(0.05)


def end_nodes(nodes: Nodes) -> None:
    """Lets them finish what they have."""
    for node in nodes.values():
        node.terminate()
    for node in nodes.values():
        node.wait()
        assert node.stdin is not None
        node.stdin.close()


def how_to_go_on(scheduler: LocalScheduler, recording: Path) -> str:
    """What to type in another terminal, as it is to be typed."""
    # Whoever came by `make run` has no `lingua` on the PATH.
    activate = Path(sys.executable).with_name("activate")
    lines = [] if shutil.which("lingua") else [f"  source {activate}"]
    lines += exports(scheduler)
    lines += [
        f"  lingua speak {recording} --from en --to es --save {recording.parent}",
        "  lingua nodes list",
        "  lingua jobs list",
        "From a program of your own (docs/clients.md):",
        f'  async with Session("{scheduler.addresses("gateway")}", src="en", tgt="es") as session:',
    ]
    return "\n".join(lines)


def run(folder: Path) -> int:
    """Runs it all; 0 only if everything was as it must be."""
    seconds = float(os.environ.get("RUN_SECONDS") or "inf")
    started = time.monotonic()

    def log(name: str, line: str) -> None:
        print(f"{name} | {line}", file=sys.stderr)

    with LocalScheduler(environ={**SETTINGS, **os.environ}, on_log=log) as scheduler:
        print(f"Redis       {scheduler.redis_words}")
        for each in scheduler.services:
            print(f"{each.name:<11} {each.address}")
        nodes = start_nodes(scheduler.address("dispatcher"), folder)
        try:
            await_nodes(scheduler.address("pool"))
            print(f"nodes       {', '.join(f'{name} ({langs})' for name, langs in NODES.items())}")
            print("\nWHO  #  CUT BY    NODE   TRIES    WHERE THE TIME WENT")
            wrong = hold_conversation(scheduler.addresses("gateway"), nodes)
            print("It stays up; in another terminal:")
            write_wav(folder / "hello.wav", speech(1.5, VOICES["Ben"][0], ends=True))
            print(how_to_go_on(scheduler, folder / "hello.wav"))
            print("Ctrl-C ends it." if seconds == math.inf else "It ends by itself.")
            left = None if seconds == math.inf else seconds - (time.monotonic() - started)
            try:
                scheduler.wait(None if left is None else max(0.0, left))
            except KeyboardInterrupt:
                print("Ending.")
            return 1 if wrong else 0
        finally:
            end_nodes(nodes)


def main() -> int:
    """The exit code of `run`, or 130 where Ctrl-C ended the conversation."""
    # Live, also where it is piped.
    sys.stdout.reconfigure(line_buffering=True)
    # However it is ended, nothing is left behind.
    # Both, also where a shell that runs it in the background had SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    print(__doc__)
    with tempfile.TemporaryDirectory(prefix="lingua-") as folder:
        try:
            return run(Path(folder))
        except KeyboardInterrupt:
            print("Ended before it was over.", file=sys.stderr)
            return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
