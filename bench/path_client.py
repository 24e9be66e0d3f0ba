"""Clients that stream 32 KiB utterances, for `path.py`: as many as asked for, or at a steady rate.

Run by it as a process of its own. It opens its sessions and prints READY. Then it obeys lines on
stdin: `saturate SECONDS` keeps one utterance of every session under way; `steady RATE SECONDS`
sends at that rate, whatever is under way. Each is answered by one line of JSON: how many, in which
time, and of each `session index sent_ns heard_ns` by the machine's monotonic clock.
"""

import argparse
import asyncio
import json
import sys
import time

import grpc
import uvloop

from lingua_scheduler.v1 import common_pb2, session_pb2, session_pb2_grpc

AUDIO = bytes(32 * 1024)
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)
SESSIONS_A_CHANNEL = 64
LAST_WAIT_S = 30.0


class Speaker:
    """One session; each utterance is one chunk."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream = session_pb2_grpc.SessionGatewayStub(channel).Converse()
        self._seq = 0
        self._results = 0
        self._sent: dict[int, int] = {}
        self._came = asyncio.Event()
        self.session_id = ""
        self.rows: list[tuple[str, int, int, int]] = []

    async def open(self) -> None:
        """Returns when the session is open."""
        new = session_pb2.NewSession(
            direction=common_pb2.LanguagePair(src="en", tgt="es"),
            audio_format=common_pb2.AudioFormat(
                encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16_000, channels=1
            ),
            options=session_pb2.SessionOptions(require_tts=True),
        )
        await self._stream.write(session_pb2.ClientMessage(open=session_pb2.Open(new=new)))
        message = await self._stream.read()
        assert isinstance(message, session_pb2.ServerMessage)
        self.session_id = message.events[0].opened.session_id
        self._reading = asyncio.create_task(self._read())

    @property
    def under_way(self) -> int:
        """Utterances without a result."""
        return len(self._sent)

    async def say(self) -> None:
        """One utterance."""
        chunk = session_pb2.AudioChunk(seq=self._seq, data=AUDIO, is_final=True)
        self._sent[self._seq] = time.monotonic_ns()
        self._seq += 1
        await self._stream.write(session_pb2.ClientMessage(audio=chunk, results_seen=self._results))

    async def heard(self) -> None:
        """Returns when another result has come."""
        self._came.clear()
        await self._came.wait()

    async def _read(self) -> None:
        while isinstance(message := await self._stream.read(), session_pb2.ServerMessage):
            now = time.monotonic_ns()
            for event in message.events:
                if event.HasField("result"):
                    index = event.result.utterance_index
                    self.rows.append((self.session_id, index, self._sent.pop(index), now))
                    self._results = index + 1
                    self._came.set()
                elif event.HasField("missing"):
                    sys.exit(f"missing: {event.missing.why.message}")
                elif event.HasField("error"):
                    sys.exit(f"error: {event.error.message}")


async def saturate(speakers: list[Speaker], seconds: float) -> float:
    """One utterance of each is always under way; returns how long it took."""
    began = time.monotonic()
    end = began + seconds

    async def talk(speaker: Speaker) -> None:
        while time.monotonic() < end:
            await speaker.say()
            await speaker.heard()

    await asyncio.gather(*map(talk, speakers))
    return time.monotonic() - began


async def steady(speakers: list[Speaker], rate: float, seconds: float) -> float:
    """Utterances at even distances, of one session after the other; returns how long it took."""
    began = time.monotonic()
    for at in range(int(rate * seconds)):
        wait = began + at / rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        await speakers[at % len(speakers)].say()
    async with asyncio.timeout(LAST_WAIT_S):
        for speaker in speakers:
            while speaker.under_way:
                await speaker.heard()
    return time.monotonic() - began


async def main(address: str, sessions: int) -> None:
    """Obeys until stdin ends."""
    channels = [
        grpc.aio.insecure_channel(address, OPTIONS)
        for _ in range(1 + (sessions - 1) // SESSIONS_A_CHANNEL)
    ]
    speakers = [Speaker(channels[at % len(channels)]) for at in range(sessions)]
    for speaker in speakers:
        await speaker.open()
    print("READY", flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        for speaker in speakers:
            speaker.rows.clear()
        if line[0] == "saturate":
            took = await saturate(speakers, float(line[1]))
        else:
            took = await steady(speakers, float(line[1]), float(line[2]))
        rows = [row for speaker in speakers for row in speaker.rows]
        print(json.dumps({"jobs": len(rows), "took_s": took, "rows": rows}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--sessions", type=int, default=64)
    given = parser.parse_args()
    uvloop.run(main(given.address, given.sessions))
