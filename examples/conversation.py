"""A conversation over the real path: what `make run` shows.

    python examples/conversation.py [--picture FILE.svg]

Redis, the services, the nodes (separate processes) and every call are real. Ana and Ben are tones,
which the client SDK streams at the pace of speech. The nodes translate nothing: they look up the
sentence that a tone stands for. Meanwhile and afterwards, people can speak through the talk page.
"""

import argparse
import asyncio
import contextlib
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import phrases
from conversation_view import SPEAKERS, ConversationView, delivered, save_picture, terminal
from phrases import Phrase
from voices import CHUNK_MS, chunks, speech, write_wav

from lingua_scheduler.cli.clients.sdk_access import client_token, tls_of
from lingua_scheduler.cli.commands.up import exports
from lingua_scheduler.cli.sample_node.phrases import write_phrases
from lingua_scheduler.cli.up.console_page import console_words
from lingua_scheduler.cli.up.errors import PartFailedError
from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from lingua_scheduler.cli.up.sample_nodes import SampleNode
from lingua_scheduler.cli.up.talk_page import talk_page
from lingua_scheduler.sdk import (
    Accepted,
    Event,
    Finalized,
    Missing,
    Outcome,
    PartialText,
    Reason,
    Result,
    Retrying,
    Session,
    SessionError,
)
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.redis.embedded.binary import EmbeddedRedisError
from lingua_scheduler.services.runtime.settings.settings import load_settings

TITLE = "Lingua Scheduler: live speech translation on nodes that anybody may own"
PAGE = (
    "Open it in a browser to speak yourself, now or later. These nodes do not know your words: "
    "they say how long they heard you, and play it back."
)
# What this is, at once; what is shown, when it begins.
ABOUT = (
    "Two people talk, each in their own language: Ana speaks Chinese, Ben English. The scheduler "
    "finds a node for each utterance, and delivers the translations in order, also if a node is "
    "killed in between.",
    "Real: Redis, three services, three node processes, every call between them. Simulated: the "
    "voices are tones, and the nodes are told which sentence each tone stands for. `make run-real` "
    "recognises, translates and speaks.",
)
LEGEND = (
    "Below, each utterance is a line: what was said in bold, and an arrow to its translation. NODE "
    "did it; each node has its colour. DELAY is the time from the end of the speech to the "
    "translation. Failures are red."
)

# The languages of each node.
NODES = {"amber": ("zh", "en"), "birch": ("zh", "en"), "cedar": ("en", "es")}
WHO = {language: who for language, (who, _) in SPEAKERS.items()}
# Time limit of the whole conversation; a busy machine needs longer than an idle one.
TALK_WITHIN_S = 120.0

# Shorter than the defaults, so that sentences are cut soon. The environment does not change them,
# because the sentences are made for them.
SETTINGS = {
    "LINGUA_MAX_DURATION_MS": "3000",
    "LINGUA_PAUSE_MS": "800",
    # A killed node does not return here, so waiting long for it is useless.
    "LINGUA_NODE_RECONNECT_GRACE_MS": "1000",
}


class Talk:
    """Ana and Ben in one session. Shows each utterance when it is delivered."""

    def __init__(self, session: Session, view: ConversationView) -> None:
        self.session = session
        self.view = view
        self.outcomes: list[Outcome] = []
        self.failed_checks = 0
        self.on_accepted: Callable[[Accepted], None] | None = None
        self._cuts: dict[int, Reason] = {}
        self._taken = 0
        self._over = False
        self._changed = asyncio.Event()

    async def say(self, src: str, phrase: Phrase, *, from_s: float = 0, to_s: float = 0) -> None:
        """Speak a sentence or a part of it. Its end is silence and the finish message."""
        ends = not to_s
        seconds = (to_s or phrase.seconds) - from_s
        direction = (src, next(other for other in SPEAKERS if other != src))
        start = time.monotonic()
        for number, chunk in enumerate(chunks(speech(seconds, phrase.hertz, ends=ends)), start=1):
            await asyncio.sleep(start + number * CHUNK_MS / 1000 - time.monotonic())
            await self.session.send(chunk, direction=direction)
            self.view.now(f"{WHO[src]} speaks, {time.monotonic() - start:.1f} s")
        if ends:
            await self.session.finish()

    async def delivered(self) -> list[Outcome]:
        """Wait until everything is delivered; returns what was delivered since the last call."""
        await self.session.drained()
        # Not by the received events, which may still wait to be read.
        while len(self.outcomes) < self.session.counts.utterances and not self._over:
            self._changed.clear()
            await self._changed.wait()
        # Raises if the session was lost.
        await self.session.drained()
        new, self._taken = self.outcomes[self._taken :], len(self.outcomes)
        return new

    async def hear(self) -> None:
        """Show all events until the session ends."""
        # The next call to say or await raises a loss.
        with contextlib.suppress(SessionError):
            async for event in self.session.events():
                self._on_event(event)
                self._changed.set()
        self._over = True
        self._changed.set()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, PartialText):
            self.view.partial(event)
        elif isinstance(event, Finalized):
            self._cuts[event.index] = event.reason
        elif isinstance(event, Accepted) and self.on_accepted is not None:
            self.on_accepted(event)
        elif isinstance(event, Retrying):
            self.view.note(event.message, "red")
        elif isinstance(event, Result | Missing):
            self.outcomes.append(event)
            self.view.utterance(event, self.cut_of(event))

    def cut_of(self, outcome: Outcome) -> Reason:
        """Why it was cut."""
        return self._cuts.get(outcome.index, Reason.UNSPECIFIED)

    def check(self, true: bool, what: str) -> None:
        """Count and report an expectation that does not hold."""
        if not true:
            self.failed_checks += 1
            self.view.note(f"CHECK FAILED: {what}", "bold red")

    def check_whole(self, parts: list[Outcome], cut: Reason, phrase: Phrase) -> None:
        """Check that a sentence was cut for this reason, and is complete on one node."""
        *held, last = parts
        self.check(
            bool(held) and all(self.cut_of(part) is cut and is_kind(part, "HELD") for part in held),
            f"the parts before the last are cut by {cut.name} and held",
        )
        self.check(len({node_of(part) for part in parts}) == 1, "the parts are on one node")
        indexes = tuple(part.index for part in held)
        self.check(isinstance(last, Result) and last.joined == indexes, "the parts are joined")
        heard = last.texts.source if isinstance(last, Result) else ""
        self.check(heard == phrase.texts[last.src], "the sentence is whole")
        # The sample nodes return the audio that they received.
        spoken = len(speech(phrase.seconds, phrase.hertz, ends=True))
        echoed = len(last.speech) if isinstance(last, Result) else 0
        self.check(echoed == spoken, f"all {spoken} bytes of its audio were heard, not {echoed}")


def is_kind(outcome: Outcome, name: str) -> bool:
    """Whether it is a result of this kind."""
    return isinstance(outcome, Result) and outcome.kind.name == name


def node_of(outcome: Outcome) -> str:
    """The node that did it."""
    return outcome.node_id if isinstance(outcome, Result) else ""


async def converse(talk: Talk, kill_node: Callable[[str], None]) -> list[str]:
    """The conversation with its checks. Returns the nodes that it killed."""
    limits, note = talk.session.limits, talk.view.note
    await talk.say("zh", phrases.GREETING)
    await talk.say("en", phrases.ANSWER)
    await talk.delivered()

    note("Ana talks for long: the parts go to the node that has the beginning.")
    await talk.say("zh", phrases.DIRECTIONS)
    talk.check_whole(await talk.delivered(), Reason.MAX_DURATION, phrases.DIRECTIONS)

    note("Ana pauses in mid-sentence: the node waits for the rest of it.")
    await talk.say("zh", phrases.ORDER, to_s=1.0)
    await asyncio.sleep(limits.pause_ms / 1000 + 0.4)
    await talk.say("zh", phrases.ORDER, from_s=1.0)
    talk.check_whole(await talk.delivered(), Reason.TIMEOUT, phrases.ORDER)

    note("Ben interrupts Ana, who then goes on.")
    await talk.say("zh", phrases.NOODLES, to_s=1.0)
    await talk.say("en", phrases.QUESTION)
    await talk.say("zh", phrases.NOODLES, from_s=1.0)
    said = await talk.delivered()
    talk.check([WHO[each.src] for each in said] == ["Ana", "Ben", "Ana"], "Ben is in between")
    ana = [each for each in said if WHO[each.src] == "Ana"]
    talk.check_whole(ana, Reason.INTERRUPTED, phrases.NOODLES)

    note("The next node that takes a job is killed; the job goes to another one.")
    killed: list[str] = []

    def kill(accepted: Accepted) -> None:
        if not killed:
            killed.append(accepted.node_id)
            kill_node(accepted.node_id)
            note(f"{accepted.node_id} has the job, and is killed.", "red")

    talk.on_accepted = kill
    # The longest utterance: the node must not finish before the signal arrives.
    await talk.say("zh", phrases.APPOINTMENT)
    await talk.say("en", phrases.GOODBYE)
    moved, *after = await talk.delivered()
    talk.check(isinstance(moved, Result) and moved.attempts == 2, "it has run twice")
    talk.check(node_of(moved) not in ("", *killed), "it has run elsewhere")
    talk.check([WHO[each.src] for each in after] == ["Ben"], "the conversation goes on")
    return killed


async def talk_at(scheduler: LocalScheduler, view: ConversationView) -> bool:
    """Open the session, and close it when everything is said and delivered.

    Returns:
        Whether all checks passed.
    """
    settings = load_settings()
    session = Session(
        scheduler.addresses("gateway"),
        a="zh",
        b="en",
        require_tts=True,
        partial_interval_ms=100,
        tls=tls_of(settings),
        token=client_token(settings),
    )
    started = time.monotonic()
    talk = Talk(session, view)
    async with asyncio.timeout(TALK_WITHIN_S), session:
        hearing = asyncio.create_task(talk.hear())
        killed = await converse(talk, lambda node_id: scheduler.nodes[node_id].kill())
    await hearing
    talk.check(
        [each.index for each in talk.outcomes] == list(range(len(talk.outcomes))),
        "every index came once, in order",
    )
    results = delivered(talk.outcomes)
    missing = len(talk.outcomes) - len(results)
    talk.check(
        all(each.node_id != "cedar" for each in results),
        "cedar has no Chinese, so none of it went there",
    )
    view.line("")
    view.line(
        f"{len(results)} utterances delivered in order, {missing} missing; "
        f"{sum(each.attempts for each in results)} attempts; {len(killed)} node killed; "
        f"{time.monotonic() - started:.0f} s",
        "bold" if not missing and not talk.failed_checks else "bold red",
    )
    return not missing and not talk.failed_checks


def hold_conversation(scheduler: LocalScheduler, view: ConversationView) -> bool:
    """Whether all checks passed."""
    try:
        return asyncio.run(talk_at(scheduler, view))
    except TimeoutError:
        view.line(f"The conversation was not over within {TALK_WITHIN_S:g} s.", "bold red")
    except SessionError as error:
        view.line(f"The conversation failed: {error}.", "bold red")
    return False


def how_to_go_on(scheduler: LocalScheduler, recording: Path) -> str:
    """Commands for another terminal."""
    # After `make run`, `lingua` is usually not on the PATH.
    activate = Path(sys.executable).with_name("activate")
    lines = [] if shutil.which("lingua") else [f"  source {activate}"]
    lines += exports(scheduler)
    lines += [
        f"  lingua speak {recording} --from en --to es \\",
        f"    --save {recording.parent}",
        "  lingua nodes list",
        "  lingua jobs list",
        "From a program of your own (docs/clients.md):",
        f'  async with Session("{scheduler.addresses("gateway")}", src="en", tgt="es") as session:',
    ]
    return "\n".join(lines)


def starting(view: ConversationView, folder: Path) -> LocalScheduler:
    """The scheduler, to be started; it shows the progress."""
    started = time.monotonic()
    parts: list[str] = []

    def log(name: str, line: str) -> None:
        print(f"{name} | {line}", file=sys.stderr)

    def ready(part: str) -> None:
        parts.append(part)
        view.now(f"Starting: {', '.join(parts)} ready; {time.monotonic() - started:.1f} s")

    view.now("Starting Redis, the services and the nodes")
    environ = {"LINGUA_LOG_LEVEL": "error", **os.environ, **SETTINGS}
    phrase_file = folder / "phrases.json"
    write_phrases(phrase_file, phrases.PHRASES)
    nodes = [
        SampleNode(node_id=node_id, langs=langs, phrases=phrase_file)
        for node_id, langs in NODES.items()
    ]
    return LocalScheduler(environ=environ, nodes=nodes, console=True, on_log=log, on_ready=ready)


def introduce(scheduler: LocalScheduler, view: ConversationView, took_s: float) -> None:
    """Show what runs, the address of the page, and what the lines below mean."""
    started = ("redis", *(each.name for each in scheduler.services), *scheduler.nodes)
    view.text(f"Started in {took_s:.1f} s: {', '.join(started)}.")
    view.line("")
    if page := talk_page(scheduler):
        for line in page.words:
            view.link(line)
        view.text(PAGE, indent=len("Talk   "))
    for line in console_words(scheduler):
        view.link(line)
    view.line("")
    view.text(LEGEND)
    view.header()


def stay_up(scheduler: LocalScheduler, folder: Path, until: float) -> None:
    """Show what to do with the scheduler, and keep it running until then or Ctrl-C."""
    recording, said = folder / "hello.wav", phrases.GOOD_MORNING
    write_wav(recording, speech(said.seconds, said.hertz, ends=True))
    print("\nIt stays up; in another terminal:")
    print(how_to_go_on(scheduler, recording))
    print("Ctrl-C ends it." if until == math.inf else "It ends by itself.")
    try:
        scheduler.wait(None if until == math.inf else max(0.0, until - time.monotonic()))
    except KeyboardInterrupt:
        print("Ending.")


def run(folder: Path, picture: Path | None) -> int:
    """Run everything; returns 0 only if all checks passed."""
    until = time.monotonic() + float(os.environ.get("RUN_SECONDS") or "inf")
    console = terminal(record=picture is not None)
    view = ConversationView(console)
    with contextlib.ExitStack() as ending:
        view.text(TITLE, "bold")
        for each in ABOUT:
            view.text(each)
        with view.live():
            started = time.monotonic()
            scheduler = ending.enter_context(starting(view, folder))
            introduce(scheduler, view, time.monotonic() - started)
            good = hold_conversation(scheduler, view)
        if picture is None:
            stay_up(scheduler, folder, until)
        else:
            save_picture(console, picture)
    return 0 if good else 1


def main() -> int:
    """The exit code of `run`, or 130 if Ctrl-C ended the conversation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--picture", metavar="FILE.svg", type=Path, help="write what was shown there, and end"
    )
    picture = parser.parse_args().picture
    # Unbuffered, even in a pipe.
    sys.stdout.reconfigure(line_buffering=True)
    # Clean up, however the program is ended.
    # Both, also if a shell that runs it in the background had SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="lingua-") as folder:
        try:
            return run(Path(folder), picture)
        except (PartFailedError, EmbeddedRedisError, SettingsError) as error:
            print(f"Error: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("Ended before it was over.", file=sys.stderr)
            return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
