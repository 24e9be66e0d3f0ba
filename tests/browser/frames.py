"""The audio that a page sends over its WebSockets (docs/web.md, frames)."""

import json
import struct
from dataclasses import dataclass, field

from playwright.sync_api import WebSocket

HEADER = struct.Struct(">BBHQQ")
_SIDES = {0: "", 1: "a", 2: "b"}


@dataclass(frozen=True)
class Chunk:
    """A chunk of audio as it was sent for the first time."""

    side: str
    is_final: bool
    data: bytes


@dataclass
class Wire:
    """All chunks that a page has sent, by session and sequence number.

    Attributes:
        languages: of each session: who speaks a language, `a` or `b`.
        changed: chunks that were sent again with another content.
        connections: how many sockets were opened.
        playbacks: how often the page has said that it begins to play speech.
    """

    sessions: dict[str, dict[int, Chunk]] = field(default_factory=dict)
    languages: dict[str, dict[str, str]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    connections: int = 0
    playbacks: int = 0

    def follow(self, socket: WebSocket) -> None:
        """Records what a socket carries."""
        self.connections += 1
        _Link(self, socket)

    def audio(self, session: str, side: str) -> bytes:
        """All audio of one person in a session, in order."""
        chunks = self.sessions.get(session, {})
        return b"".join(chunks[seq].data for seq in sorted(chunks) if chunks[seq].side == side)

    def add(self, session: str, seq: int, chunk: Chunk) -> None:
        """A chunk was sent, maybe again."""
        first = self.sessions.setdefault(session, {}).setdefault(seq, chunk)
        if first != chunk:
            self.changed.append(f"chunk {seq} of {session}: {first} and {chunk}")


class _Link:
    """One connection. What it sends before the server has named the session waits for the name."""

    def __init__(self, wire: Wire, socket: WebSocket) -> None:
        self._wire = wire
        self._session = ""
        self._languages: dict[str, str] = {}
        self._early: list[bytes] = []
        socket.on("framesent", self._on_sent)
        socket.on("framereceived", self._on_received)

    def _on_sent(self, frame: bytes | str) -> None:
        if isinstance(frame, bytes):
            self._early.append(frame)
            self._flush()
            return
        message = json.loads(frame)
        self._wire.playbacks += "playbackStarted" in message
        match message.get("open"):
            case {"resume": {"sessionId": session}}:
                self._name(session)
            case {"new": {"conversation": {"a": a, "b": b}}}:
                self._languages = {a: "a", b: "b"}

    def _on_received(self, frame: bytes | str) -> None:
        if isinstance(frame, str) and not self._session:
            for event in json.loads(frame).get("events", []):
                if "opened" in event:
                    self._name(event["opened"]["sessionId"])

    def _name(self, session: str) -> None:
        self._session = session
        self._wire.languages.setdefault(session, self._languages)
        self._flush()

    def _flush(self) -> None:
        if not self._session:
            return
        for frame in self._early:
            _, flags, _, seq, _ = HEADER.unpack_from(frame)
            side = _SIDES[flags >> 1 & 3]
            self._wire.add(self._session, seq, Chunk(side, bool(flags & 1), frame[HEADER.size :]))
        self._early.clear()
