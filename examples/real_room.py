"""A guided tour in a room: what `make run-real ROOM=yes` shows.

Ana speaks English, with a synthetic voice. Luis listens in Spanish, to captions and speech, and
Emma reads English captions. Marta, who reads Spanish, comes late. Interpreter nodes recognise what
Ana says, once for each language, and translate it to Spanish.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from recorded_speech import speakers_voice, write_speech, write_wav

from lingua_scheduler.cli.clients.sdk_access import client_token, tls_of
from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from lingua_scheduler.cli.up.talk_page import talk_page
from lingua_scheduler.sdk import (
    Listener,
    NotSaid,
    Outcome,
    Receipt,
    ResultKind,
    Room,
    Said,
    Session,
    wav_format,
)
from lingua_scheduler.services.runtime.settings.settings import load_settings

# Time limit of the whole tour; a busy machine needs longer than an idle one.
WITHIN_S = 240.0
# A pause in the middle of a sentence, longer than the pause that cuts it.
PAUSE_S = 2.5

HEADING = __doc__ or ""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """What Ana says. Several texts have a pause between them, within the sentence."""

    texts: tuple[str, ...]
    note: str = ""


TOUR = (
    Part(("Good morning, and welcome to the museum of the city.",)),
    Part(
        ("This house was a hospital before the war because", "there was no other in the city."),
        "Ana pauses in the middle of a sentence. Nodes hold it, for each language on its own",
    ),
    Part(
        ("The first room has pictures of the old port.",),
        "Marta comes late, and gets the captions so far",
    ),
    Part(("Thank you very much for your visit, and see you soon.",)),
)


@dataclass(frozen=True)
class Guest:
    """Somebody who listens; `comes_with` is the number of the part before which it joins."""

    name: str
    language: str
    speech: bool = False
    comes_with: int = 0


GUESTS = (Guest("Luis", "es", speech=True), Guest("Emma", "en"), Guest("Marta", "es", comes_with=2))


@dataclass
class Hearing:
    """What a guest hears, shown line by line."""

    guest: Guest
    listener: Listener
    folder: Path
    say: Say
    heard: list[Said | NotSaid] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def listen(self) -> None:
        """Show everything until the guest leaves."""
        async for heard in self.listener:
            self.heard.append(heard)
            self._show(heard)
            self._news.set()

    async def up_to(self, room_index: int) -> None:
        """Return when this utterance has arrived."""
        while not self.heard or self.heard[-1].room_index < room_index:
            self._news.clear()
            await self._news.wait()

    def _show(self, heard: Said | NotSaid) -> None:
        head = f"#{heard.room_index:<3} {self.guest.name:<6} {self.guest.language}"
        if isinstance(heard, NotSaid):
            self.say(f"{head}   MISSING: {heard.reason}")
            return
        delay = f"{time.time() - heard.cut_at_ms / 1000:.2f}s"
        self.say(f"{head}   {'earlier' if heard.replayed else delay:>7}   {words(heard)}")
        if heard.speech and heard.speech_format is not None:
            path = self.folder / f"{self.guest.name.lower()}-{heard.room_index:04}.wav"
            write_wav(path, heard.speech, heard.speech_format.sample_rate_hz)
            seconds = heard.speech_format.duration_ms(len(heard.speech)) / 1000
            self.say(f"{'':26} speech {seconds:.2f}s in {path}")


def words(said: Said) -> str:
    """The caption, or why there is none."""
    if said.kind is ResultKind.HELD:
        return "(unfinished: a later utterance has its text)"
    if said.kind is not ResultKind.TRANSLATED:
        return "(no speech)"
    joined = f"   (with #{', #'.join(map(str, said.joined))})" if said.joined else ""
    return said.text + joined


def record(folder: Path) -> dict[Part, list[Path]]:
    """Write the speech to WAV files."""
    voice = speakers_voice()
    return {
        part: [
            write_speech(folder / f"{number}-ana-{at}.wav", text, language="en", voice=voice)
            for at, text in enumerate(part.texts, start=1)
        ]
        for number, part in enumerate(TOUR, start=1)
    }


class Tour:
    """Ana's tour in one room.

    Args:
        host: the room, as its host.
        visit: makes the room for somebody with this token.
        folder: gets the translated speech.
        say: prints a line.
    """

    def __init__(self, *, host: Room, visit: Callable[[str], Room], folder: Path, say: Say) -> None:
        self._host = host
        self._visit = visit
        self._folder = folder
        self._say = say
        self._hearings: list[Hearing] = []
        self._outcomes: list[Outcome] = []

    async def hold(self, recorded: Mapping[Part, list[Path]]) -> bool:
        """Speak all parts; returns whether everybody got everything."""
        audio = wav_format(next(iter(recorded.values()))[0])
        async with asyncio.TaskGroup() as tasks, AsyncExitStack() as present:
            ana = self._host.speak(language="en", name="Ana", audio_format=audio)
            await present.enter_async_context(ana)
            tasks.create_task(self._take(ana))
            for number, (part, files) in enumerate(recorded.items()):
                for guest in GUESTS:
                    if guest.comes_with == number:
                        tasks.create_task((await self._join(guest, present)).listen())
                await self._speak(ana, part, files)
            await ana.close()
        return self._is_complete()

    async def _join(self, guest: Guest, present: AsyncExitStack) -> Hearing:
        room = self._visit(await self._host.join_token("listener"))
        listener = room.listen(language=guest.language, speech=guest.speech, name=guest.name)
        await present.enter_async_context(listener)
        self._hearings.append(Hearing(guest, listener, self._folder, self._say))
        return self._hearings[-1]

    async def _take(self, ana: Session) -> None:
        async for outcome in ana.results():
            self._outcomes.append(outcome)

    async def _speak(self, ana: Session, part: Part, files: list[Path]) -> None:
        self._say(f"\nAna says: {' ... '.join(part.texts)}")
        if part.note:
            self._say(f"({part.note}.)")
        for at, path in enumerate(files):
            if at:
                await asyncio.sleep(PAUSE_S)
            await ana.send_file(path)
        await ana.finish()
        await ana.drained()
        last = await self._last_room_index()
        await asyncio.gather(*(each.up_to(last) for each in self._hearings))

    async def _last_room_index(self) -> int:
        return (await self._host.get()).next_index - 1

    def _is_complete(self) -> bool:
        """Whether no utterance is missing, in any language and for anybody."""
        receipts = [each for each in self._outcomes if isinstance(each, Receipt)]
        missing = [each for receipt in receipts for each in receipt.missing]
        heard = [each for hearing in self._hearings for each in hearing.heard]
        lost = [each for each in heard if isinstance(each, NotSaid)]
        self._say(
            f"\n{len(receipts)} utterances in {len({each.language for each in GUESTS})} languages,"
            f" {len(missing)} missing; {len(heard)} captions for {len(GUESTS)} listeners,"
            f" {len(lost)} missing."
        )
        return len(receipts) == len(self._outcomes) and not missing and not lost


async def hold_tour(gateways: str, folder: Path, say: Say) -> tuple[bool, Room, Path]:
    """Create a room and hold the tour in it.

    Returns:
        Whether everybody got everything; the room, which stays open; the last recording.
    """
    settings = load_settings()
    tls = tls_of(settings)
    host = await Room.create(
        gateways, name="Museum of the city", tls=tls, token=client_token(settings)
    )

    def visit(token: str) -> Room:
        return Room(gateways, room_id=host.room_id, token=token, tls=tls)

    tour = Tour(host=host, visit=visit, folder=folder, say=say)
    recorded = await asyncio.to_thread(record, folder / "said")
    async with asyncio.timeout(WITHIN_S):
        return await tour.hold(recorded), host, recorded[TOUR[-1]][-1]


async def room_pages(scheduler: LocalScheduler, room: Room) -> list[str]:
    """Where people can join the room in a browser, one line each."""
    page = talk_page(scheduler)
    if page is None:
        return []
    listens, speaks = [await room.join_token(role) for role in ("listener", "speaker")]
    lines = []
    for url in filter(None, (page.url, page.lan_url)):
        link = f"{room_page(url).partition('#')[0]}#room={room.room_id}&token="
        lines += [
            f"To listen, open {link}{listens}",
            f"To speak:       {link}{speaks}&role=speaker",
        ]
    return lines


def room_page(talk_url: str) -> str:
    """The address of the room page, by that of the talk page: where people make their own room."""
    return urlsplit(talk_url)._replace(path="/room").geturl()
