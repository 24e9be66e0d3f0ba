"""Clients that speak to a whole scheduler.

A Speaker is a client that writes down every word that it says, and every word that comes back. What
was said has to be what was heard: nothing lost, nothing twice, in order, for each direction.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lingua_scheduler.sdk import (
    Event,
    Finalized,
    Missing,
    Outcome,
    Reason,
    Reconnecting,
    Result,
    ResultKind,
    Session,
)
from tests.support.listening_node import WORD_MS, audio_of

EN_ES = ("en", "es")
ES_EN = ("es", "en")

# What is to come comes at once; a busy machine may need much longer for it.
SOON_S = 30.0


@dataclass(frozen=True)
class Turn:
    """Utterances that were translated together: those that were held, and the last one."""

    parts: list[Result]

    @property
    def words(self) -> list[int]:
        """The words that the node heard."""
        return words_of(self.parts[-1])

    @property
    def nodes(self) -> set[str]:
        """The nodes of its parts."""
        return {part.node_id for part in self.parts}


class Speaker:
    """Says words to a session, and records what it says and hears.

    Attributes:
        said: all words, in order, by direction.
        events: all that came, in order.
        waits: for each sentence, when its result came and the seconds since its last word.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.said: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self.events: list[Event] = []
        self.waits: list[tuple[float, float]] = []
        self._said_at: dict[int, float] = {}
        self._changed = asyncio.Event()
        self._next_at = 0.0

    # ---- speaking ----

    async def say(
        self, *words: int, direction: tuple[str, str] = EN_ES, pace: bool = False
    ) -> None:
        """Says words, one chunk each; with `pace` as fast as they are spoken."""
        loop = asyncio.get_running_loop()
        for word in words:
            if pace:
                self._next_at = max(self._next_at, loop.time()) + WORD_MS / 1000
                await asyncio.sleep(self._next_at - loop.time())
            self.said[direction].append(word)
            self._said_at[word] = loop.time()
            await self.session.send(audio_of(word), direction=direction)

    async def say_sentence(self, *words: int, **how: Any) -> None:
        """Says words, and that they are a sentence."""
        await self.say(*words, **how)
        await self.session.finish()

    # ---- hearing ----

    async def hear(self) -> None:
        """Records all events until the session has ended."""
        loop = asyncio.get_running_loop()
        async for event in self.session.events():
            self.events.append(event)
            if isinstance(event, Result) and event.kind is ResultKind.TRANSLATED:
                # A word of which a part is lost was never said like that.
                said_at = self._said_at.get(words_of(event)[-1], loop.time())
                self.waits.append((loop.time(), loop.time() - said_at))
            self._changed.set()

    async def until(self, condition: Callable[[], bool], within: float = SOON_S) -> None:
        """Returns when a condition on the recorded events holds."""
        try:
            async with asyncio.timeout(within):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {within} s; so far: {self.events}") from None

    async def outcome(self, index: int, within: float = SOON_S) -> Outcome:
        """Waits for the result of an utterance, or for the event that it is missing."""
        await self.until(lambda: len(self.outcomes) > index, within)
        return self.outcomes[index]

    async def cut(self, index: int, within: float = SOON_S) -> Finalized:
        """Waits until an utterance is cut; returns the event."""
        await self.until(lambda: index in {each.index for each in self.cuts}, within)
        return next(each for each in self.cuts if each.index == index)

    @property
    def slowest(self) -> float:
        """The longest time from a sentence's last word to its result, in seconds."""
        return max((took for _, took in self.waits), default=0.0)

    @property
    def outcomes(self) -> list[Outcome]:
        """Results and missing ones, in the order in which they came."""
        return [each for each in self.events if isinstance(each, Result | Missing)]

    @property
    def results(self) -> list[Result]:
        """Only the results."""
        return [each for each in self.events if isinstance(each, Result)]

    @property
    def cuts(self) -> list[Finalized]:
        """All events of cuts."""
        return [each for each in self.events if isinstance(each, Finalized)]

    @property
    def interruptions(self) -> list[Reconnecting]:
        """Each time that the connection was lost."""
        return [each for each in self.events if isinstance(each, Reconnecting)]

    def reasons(self) -> list[Reason]:
        """Why the utterances were cut, in their order."""
        return [each.reason for each in sorted(self.cuts, key=lambda cut: cut.index)]

    def turns(self, direction: tuple[str, str] = EN_ES) -> list[Turn]:
        """The sentences of a direction, each with what was held of it before."""
        found: list[Turn] = []
        held: list[Result] = []
        for result in self.results:
            if (result.src, result.tgt) != direction:
                continue
            held.append(result)
            if result.kind is ResultKind.TRANSLATED:
                found.append(Turn(held))
                held = []
        assert not held, f"held, and nothing came of it: {held}"
        return found

    # ---- checking ----

    def check_indexes(self) -> None:
        """Each index has come once, in order."""
        assert [each.index for each in self.outcomes] == list(range(len(self.outcomes)))
        if not self.interruptions:
            assert self.session.counts.repeated == 0

    def check_all_heard(self) -> None:
        """Every word that was said has come back once, in order, and no utterance is missing."""
        self.check_indexes()
        missing = [each for each in self.outcomes if isinstance(each, Missing)]
        assert not missing, missing
        for direction, said in self.said.items():
            turns = self.turns(direction)
            heard = [word for turn in turns for word in turn.words]
            assert heard == said, (
                f"{self.session.session_id} {direction}: {difference(said, heard)}"
            )
            for turn in turns:
                assert turn.parts[-1].joined == tuple(part.index for part in turn.parts[:-1])


def words_of(result: Result) -> list[int]:
    """The words of a result; a word that is incomplete is negative."""
    words = result.texts.source.split()
    return [-int(word[:-1]) if word.endswith("?") else int(word) for word in words]


def difference(said: list[int], heard: list[int]) -> str:
    """Describes the difference for people."""
    lost = sorted(set(said) - set(heard))
    never_said = sorted(set(heard) - set(said))
    twice = sorted({word for word in heard if heard.count(word) > 1})
    return f"lost {lost}, never said {never_said}, twice {twice}; heard {heard}"


@contextlib.asynccontextmanager
async def speaking(to: str, *, both: bool = False, **options: Any) -> AsyncIterator[Speaker]:
    """A speaker with a session of its own; at the end all results have come.

    Args:
        to: addresses of gateways.
        both: a conversation, in which each word has its direction.
        options: of Session.
    """
    langs: dict[str, Any] = {"a": "en", "b": "es"} if both else {"src": "en", "tgt": "es"}
    hearing: asyncio.Task[None] | None = None
    try:
        async with Session(to, **langs, **options) as session:
            speaker = Speaker(session)
            hearing = asyncio.create_task(speaker.hear())
            yield speaker
        await hearing
    finally:
        if hearing is not None:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)


def sentences(start: int, lengths: Iterable[int]) -> Iterator[list[int]]:
    """Sentences of so many words each; all words are even, so that no pause looks unfinished."""
    for length in lengths:
        yield list(range(start, start + 2 * length, 2))
        start += 2 * length
