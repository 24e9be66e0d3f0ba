"""The quality of the interpreter node, and the scheduler's share of the time.

    make bench-translate            # or ARGS=--json, ARGS="--only short", ARGS="--only engines"

The engines are compared one by one first (bench/engines.py). Then synthetic voices say the
sentences of bench/sentences over the client SDK, at the pace of speech, to a real scheduler with
two interpreter nodes: one by one, and all of them as one long speech, which the scheduler cuts
every ten seconds: with turn affinity, without it, and with nodes that translate each piece
separately. Nodes take their engines from the variables: INTERPRETER_ASR=moonshine.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import engines
import sacrebleu
from interpreter_node.engines import RATE, Samples
from interpreter_node.settings import read_settings
from interpreter_processes import await_nodes, end_nodes, start_nodes
from machine import machine
from word_errors import WordErrors, errors_by_word, near, word_errors, words

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from lingua_scheduler.sdk import Finalized, Missing, Reason, Result, ResultKind, Session

DIRECTIONS = (("en", "es"), ("es", "en"))
CHUNK_S = 0.1
# Silence after each sentence of the long speech, in addition to that of the voice itself.
BETWEEN_S = 0.2
# Words that are closer to a cut than this may be affected by it.
NEAR_S = 1.5
QUIET = {"LINGUA_LOG_LEVEL": "error"}
# A turn's binding cannot be switched off, but it can expire before the next piece, which comes ten
# seconds later.
NO_AFFINITY = {"LINGUA_BINDING_TTL_MS": "1000"}


@dataclass(frozen=True)
class Sentence:
    """A sentence: its text, its reference translation and its audio."""

    said: str
    reference: str
    audio: bytes

    @property
    def seconds(self) -> float:
        """Duration of the audio."""
        return len(self.audio) / 2 / RATE


@dataclass
class Turn:
    """One sentence through the scheduler."""

    sentence: Sentence
    result: Result
    # From the first and from the last chunk to the result, measured at the client.
    from_first_s: float
    from_last_s: float

    @property
    def node_s(self) -> float:
        """Time of the node's stages; the rest is the scheduler's."""
        stages = self.result.timings.stages
        return max((each.started_ms + each.took_ms for each in stages), default=0) / 1000

    @property
    def hangover_s(self) -> float:
        """The intentional wait for late audio."""
        return self.result.timings.hangover_ms / 1000


@dataclass
class Speech:
    """One long speech through the scheduler."""

    heard: str
    cuts: list[float] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)


def sentences(src: str, tgt: str, count: int) -> list[Sentence]:
    """The sentences of bench/sentences, spoken."""
    voice = next(reversed(engines.speakers().values()))()
    return [
        Sentence(
            said, reference, pcm(engines.samples(b"".join(voice.speak(said, src)), voice.rate))
        )
        for said, reference in engines.lines(src, tgt, count)
    ]


def pcm(samples: Samples) -> bytes:
    """Samples as 16-bit PCM."""
    return (samples * 32767).astype("<i2").tobytes()


@contextmanager
def scheduler(settings: dict[str, str], *options: str) -> Iterator[str]:
    """A scheduler with two nodes; yields the gateway's address."""
    environ = {**QUIET, **os.environ, **settings}
    with LocalScheduler(environ=environ) as up:
        pool = {"LINGUA_POOL_ADDRESS": up.addresses("pool")}
        nodes = start_nodes(("amber", "birch"), up.address("dispatcher"), *options)
        try:
            await_nodes(nodes, {**os.environ, **pool})
            yield up.addresses("gateway")
        finally:
            end_nodes(nodes)


async def say(session: Session, audio: bytes) -> float:
    """Send audio at the pace of speech; returns when the last chunk was sent."""
    size = int(RATE * CHUNK_S) * 2
    started = time.monotonic()
    for number, at in enumerate(range(0, len(audio), size), start=1):
        await asyncio.sleep(max(0.0, started + number * CHUNK_S - time.monotonic()))
        await session.send(audio[at : at + size])
    return time.monotonic()


async def say_each(address: str, src: str, tgt: str, said: Sequence[Sentence]) -> list[Turn]:
    """Say one sentence after the other, each as an utterance."""
    turns = []
    async with Session(address, src=src, tgt=tgt, require_tts=True) as session:
        results = session.results()
        for sentence in said:
            started = time.monotonic()
            last = await say(session, sentence.audio)
            await session.finish()
            result = await anext(results)
            now = time.monotonic()
            if isinstance(result, Missing):
                raise RuntimeError(f"{sentence.said!r} is missing: {result.reason}")
            turns.append(Turn(sentence, result, now - started, now - last))
    return turns


async def say_all(address: str, src: str, tgt: str, said: Sequence[Sentence]) -> Speech:
    """Say everything as one speech, which is too long for one utterance."""
    async with Session(address, src=src, tgt=tgt, require_tts=False) as session:
        hearing = asyncio.create_task(_hear(session))
        await say(session, joined(said))
        await session.finish()
        await session.close()
        return await hearing


async def _hear(session: Session) -> Speech:
    speech, at, heard = Speech(""), 0.0, []
    reasons: dict[int, Reason] = {}
    async for event in session.events():
        if isinstance(event, Finalized):
            reasons[event.index] = event.reason
        elif isinstance(event, Result):
            at += event.timings.audio_ms / 1000
            if reasons[event.index] is Reason.MAX_DURATION:
                speech.cuts.append(at)
            name = event.kind.name
            speech.kinds[name] = speech.kinds.get(name, 0) + 1
            if event.kind is ResultKind.TRANSLATED:
                heard.append(event.texts.source)
        elif isinstance(event, Missing):
            speech.kinds["MISSING"] = speech.kinds.get("MISSING", 0) + 1
    speech.heard = " ".join(heard)
    return speech


def joined(said: Sequence[Sentence]) -> bytes:
    """One long speech."""
    return b"".join(each.audio + bytes(int(BETWEEN_S * RATE) * 2) for each in said)


def word_times(said: Sequence[Sentence]) -> list[float]:
    """Estimated time of each word of the long speech: evenly spread within its sentence."""
    times, at = [], 0.0
    for sentence in said:
        count = len(words(sentence.said))
        times += [at + sentence.seconds * (each + 0.5) / count for each in range(count)]
        at += sentence.seconds + BETWEEN_S
    return times


def short_report(turns: Sequence[Turn], src: str, tgt: str) -> dict[str, Any]:
    """Quality and times of sentences that were said one by one."""
    translator = engines.translator(read_settings([]).mt)
    perfect = [translator.translate(each.sentence.said, src, tgt) for each in turns]
    translator.close()
    references = [[each.sentence.reference for each in turns]]
    heard = WordErrors()
    for each in turns:
        heard += word_errors(each.sentence.said, each.result.texts.source)
    made = [each.result.texts.translated for each in turns]
    stages: dict[str, list[int]] = {}
    for each in turns:
        for stage in each.result.timings.stages:
            stages.setdefault(stage.stage.name, []).append(stage.took_ms)
    own = [each.from_last_s - each.hangover_s - each.node_s for each in turns]
    with_hangover = [each.from_last_s - each.node_s for each in turns]
    waits, whole = [each.from_last_s for each in turns], [each.from_first_s for each in turns]
    return {
        "sentences": len(turns),
        "words": heard.words,
        "word_error_rate": heard.rate,
        "chrf": sacrebleu.corpus_chrf(made, references).score,
        "chrf_of_what_was_said": sacrebleu.corpus_chrf(perfect, references).score,
        "stage_ms": {
            name: {"median": statistics.median(took), "p90": _p90(took)}
            for name, took in stages.items()
        },
        "real_time_factor": sum(each.node_s for each in turns)
        / sum(each.sentence.seconds for each in turns),
        "wait_ms": {
            "median": 1000 * statistics.median(waits),
            "p90": 1000 * _p90(waits),
        },
        "scheduler_ms": {
            "median": 1000 * statistics.median(own),
            "p90": 1000 * _p90(own),
        },
        "scheduler_share": {
            "of_turn": sum(own) / sum(whole),
            "of_turn_with_hangover": sum(with_hangover) / sum(whole),
            "of_wait": sum(own) / sum(waits),
            "of_wait_with_hangover": sum(with_hangover) / sum(waits),
        },
    }


def long_report(speech: Speech, said: Sequence[Sentence]) -> dict[str, Any]:
    """Recognition of a long speech, as a whole and near the cuts."""
    reference = [word for each in said for word in words(each.said)]
    errors = errors_by_word(reference, words(speech.heard))
    at_cuts = near(word_times(said), errors, speech.cuts, NEAR_S)
    return {
        "cuts": len(speech.cuts),
        "utterances": speech.kinds,
        "words": len(reference),
        "word_error_rate": sum(errors) / len(reference),
        "words_at_cuts": at_cuts.words,
        "word_error_rate_at_cuts": at_cuts.rate,
        "heard": speech.heard,
    }


def _p90(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.9))]


LONG = {
    "affinity": ({}, ()),
    "no affinity": (NO_AFFINITY, ()),
    "no joining": ({}, ("--join", "off")),
}


def run(count: int, only: str, progress: Any) -> dict[str, Any]:
    """All measurements."""
    spoken = {pair: sentences(*pair, count) for pair in DIRECTIONS if only != "engines"}
    report: dict[str, Any] = {"machine": machine(), "engines": {}, "short": {}, "long": {}}
    if only in ("", "engines"):
        report["engines"] = engines.compare(count, progress)
    if only in ("", "short"):
        with scheduler({}) as address:
            for src, tgt in DIRECTIONS:
                progress(f"{src}->{tgt}, one by one")
                turns = asyncio.run(say_each(address, src, tgt, spoken[src, tgt]))
                report["short"][f"{src}-{tgt}"] = short_report(turns, src, tgt)
    if only in ("", "long"):
        for name, (settings, options) in LONG.items():
            progress(f"long speech, {name}")
            with scheduler(settings, *options) as address:
                speeches = asyncio.run(_both(address, spoken))
            report["long"][name] = {
                f"{src}-{tgt}": long_report(speech, spoken[src, tgt])
                for (src, tgt), speech in speeches.items()
            }
    return report


async def _both(
    address: str, spoken: dict[tuple[str, str], list[Sentence]]
) -> dict[tuple[str, str], Speech]:
    """Two people at the same time, each with a session of their own."""
    tasks = [say_all(address, *pair, said) for pair, said in spoken.items()]
    return dict(zip(spoken, await asyncio.gather(*tasks), strict=True))


def show(report: dict[str, Any]) -> None:
    """Print the tables of docs/interpreter.md and docs/performance.md."""
    if report["engines"]:
        engines.show(report["engines"])
    if report["short"]:
        print("| | " + " | ".join(report["short"]) + " |\n|---|" + "---|" * len(report["short"]))
        for name, of in _ROWS.items():
            print(f"| {name} | " + " | ".join(of(each) for each in report["short"].values()) + " |")
    if report["long"]:
        print("\n| long speech | direction | cuts | word error rate | at the cuts | results |")
        print("|---|---|---|---|---|---|")
        for name, directions in report["long"].items():
            for pair, each in directions.items():
                kinds = ", ".join(f"{count} {kind}" for kind, count in each["utterances"].items())
                print(
                    f"| {name} | {pair} | {each['cuts']} | {each['word_error_rate']:.1%}"
                    f" | {each['word_error_rate_at_cuts']:.1%} of {each['words_at_cuts']} words"
                    f" | {kinds.lower()} |"
                )
    print("\nMachine:", ", ".join(f"{name} {value}" for name, value in report["machine"].items()))


def _stages(each: dict[str, Any]) -> str:
    return ", ".join(
        f"{name.lower()} {took['median']:.0f} / {took['p90']:.0f}"
        for name, took in each["stage_ms"].items()
    )


_ROWS = {
    "sentences, words": lambda each: f"{each['sentences']}, {each['words']}",
    "word error rate": lambda each: f"{each['word_error_rate']:.1%}",
    "chrF": lambda each: f"{each['chrf']:.1f}",
    "chrF with perfect recognition": lambda each: f"{each['chrf_of_what_was_said']:.1f}",
    "ms per stage, median / p90": _stages,
    "real-time factor of the node": lambda each: f"{each['real_time_factor']:.3f}",
    "ms from the last word to the result, median / p90": lambda each: (
        f"{each['wait_ms']['median']:.0f} / {each['wait_ms']['p90']:.0f}"
    ),
    "of this, the scheduler without the hangover, ms": lambda each: (
        f"{each['scheduler_ms']['median']:.0f} / {each['scheduler_ms']['p90']:.0f}"
    ),
    "the scheduler's share of the turn": lambda each: f"{each['scheduler_share']['of_turn']:.2%}",
    "... with the hangover of 200 ms": lambda each: (
        f"{each['scheduler_share']['of_turn_with_hangover']:.2%}"
    ),
    "its share of the wait after the last word": lambda each: (
        f"{each['scheduler_share']['of_wait']:.1%}"
    ),
    "... with the hangover": lambda each: f"{each['scheduler_share']['of_wait_with_hangover']:.1%}",
}


def main() -> None:
    """Run and print; takes about ten minutes, most of it speech."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument(
        "--only",
        choices=("engines", "short", "long"),
        default="",
        help="run one of the three parts",
    )
    parser.add_argument(
        "--sentences", type=int, default=1000, help="at most this many per direction"
    )
    chosen = parser.parse_args()

    def progress(text: str) -> None:
        print(f"... {text}", file=sys.stderr)

    report = run(chosen.sentences, chosen.only, progress)
    if chosen.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        show(report)


if __name__ == "__main__":
    main()
