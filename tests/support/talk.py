"""What a browser does with the talk page's address, by hand: a conversation over its web entry."""

import ssl
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from lingua_scheduler.v1 import session_pb2
from tests.support.web_client import Event, WebClient, web_client

# 100 ms of 16 kHz PCM.
BLOCK_BYTES = 3200
# A busy machine takes its time.
WITHIN_S = 30.0


class Talk:
    """A conversation of two people at the page with this address.

    Args:
        url: of the page, with a token if one is needed.
        ca: the authority of its certificate; None without TLS.
    """

    def __init__(self, url: str, ca: str | None = None) -> None:
        parts = urlsplit(url)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.token = parts.fragment.removeprefix("token=")
        self._address = parts.netloc
        self._options: dict[str, Any] = {}
        if parts.scheme == "https":
            self._options["ssl"] = ssl.create_default_context(cafile=ca)

    async def get(self, path: str) -> tuple[int, str]:
        """The status and body of a GET with the token."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"{self.origin}{path}", headers=headers, **self._options) as answer,
        ):
            return answer.status, await answer.text()

    async def converse(self, a: str, b: str, *said: bytes) -> tuple[list[Event], WebClient]:
        """Says these in turn, `a` first, each held and released; returns the results."""
        session = session_pb2.NewSession(
            conversation=session_pb2.LanguageSet(a=a, b=b),
            audio_format={
                "encoding": "AUDIO_ENCODING_PCM_S16LE",
                "sample_rate_hz": 16_000,
                "channels": 1,
            },
            options={"require_tts": True, "partial_interval_ms": 300},
        )
        async with web_client(self._address, self.token, **self._options) as client:
            await client.open(session)
            seq = 0
            for turn, audio in enumerate(said):
                for at in range(0, len(audio), BLOCK_BYTES):
                    await client.chunk(seq, audio[at : at + BLOCK_BYTES], way=1 + turn % 2)
                    seq += 1
                await client.chunk(seq, final=True, way=1 + turn % 2)
                seq += 1
            results = [
                await client.event("result", lambda each, at=at: _index(each) == at, WITHIN_S)
                for at in range(len(said))
            ]
            await client.say(close={})
            await client.event("closed")
            return results, client


def _index(result: Event) -> int:
    return int(result.get("utteranceIndex", 0))
