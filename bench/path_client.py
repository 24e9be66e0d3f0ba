"""Clients that stream 32 KiB utterances, for `path.py`: at saturation, or at a steady rate.

`path.py` runs this as a process. It opens its sessions, prints READY, and then reads commands from
stdin. `saturate SECONDS [WIDTH [CHUNKS]]` keeps WIDTH utterances in progress, by default one per
session, each in CHUNKS chunks. `steady RATE SECONDS` sends at that rate, whatever is in progress.
`idle SECONDS` does nothing. The answer to each is one line of JSON: how many jobs, in which time,
and for each `job sent_ns heard_ns` by the machine's monotonic clock.
"""

import argparse
import asyncio
import gc
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
    """One session."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = session_pb2_grpc.SessionGatewayStub(channel)
        self._seq = 0
        self._said = 0
        self._results = 0
        self._sent: dict[int, int] = {}
        self._came = asyncio.Event()
        # gRPC allows one write at a time.
        self._writing = asyncio.Lock()
        self.rows: list[tuple[str, int, int]] = []

    async def open(self) -> None:
        """Return when the session is open."""
        new = session_pb2.NewSession(
            direction=common_pb2.LanguagePair(src="en", tgt="es"),
            audio_format=common_pb2.AudioFormat(
                encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16_000, channels=1
            ),
            options=session_pb2.SessionOptions(require_tts=True),
        )
        # Not earlier: a gateway waits only for a limited time for a client's first message.
        self._stream = self._stub.Converse()
        await self._stream.write(session_pb2.ClientMessage(open=session_pb2.Open(new=new)))
        message = await self._stream.read()
        assert isinstance(message, session_pb2.ServerMessage)
        assert message.events[0].HasField("opened")
        self._reading = asyncio.create_task(self._read())

    @property
    def under_way(self) -> int:
        """Utterances without a result."""
        return len(self._sent)

    async def say(self, chunks: int = 1) -> int:
        """Send one utterance; returns its index."""
        began = time.monotonic_ns()
        size = len(AUDIO) // chunks
        async with self._writing:
            index = self._said
            self._said += 1
            self._sent[index] = began
            for at in range(chunks):
                data = AUDIO[at * size : (at + 1) * size] if chunks > 1 else AUDIO
                await self._write(data, is_final=at == chunks - 1)
        return index

    async def _write(self, data: bytes, *, is_final: bool) -> None:
        chunk = session_pb2.AudioChunk(seq=self._seq, data=data, is_final=is_final)
        self._seq += 1
        await self._stream.write(session_pb2.ClientMessage(audio=chunk, results_seen=self._results))

    async def result_of(self, index: int) -> None:
        """Return when its result has arrived."""
        while self._results <= index:
            await self.heard()

    async def heard(self) -> None:
        """Return when another result has arrived."""
        self._came.clear()
        await self._came.wait()

    async def _read(self) -> None:
        while isinstance(message := await self._stream.read(), session_pb2.ServerMessage):
            now = time.monotonic_ns()
            for event in message.events:
                if event.HasField("result"):
                    index = event.result.utterance_index
                    self.rows.append((event.result.job_id, self._sent.pop(index), now))
                    self._results = index + 1
                    self._came.set()
                elif event.HasField("missing"):
                    sys.exit(f"missing: {event.missing.why.message}")
                elif event.HasField("error"):
                    sys.exit(f"error: {event.error.message}")


async def saturate(
    speakers: list[Speaker], seconds: float, width: int = 0, chunks: int = 1
) -> float:
    """Keep `width` utterances in progress, by default one per session; returns the duration."""
    width = width or len(speakers)
    began = time.monotonic()
    end = began + seconds

    async def talk(at: int) -> None:
        while time.monotonic() < end:
            speaker = speakers[at % len(speakers)]
            await speaker.result_of(await speaker.say(chunks))
            at += width

    await asyncio.gather(*map(talk, range(width)))
    return time.monotonic() - began


async def steady(speakers: list[Speaker], rate: float, seconds: float) -> float:
    """Send utterances at even intervals, one session after the other; returns the duration.

    A write that has to wait does not delay the next utterance.
    """
    began = time.monotonic()
    async with asyncio.TaskGroup() as sending:
        for at in range(int(rate * seconds)):
            wait = began + at / rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            sending.create_task(speakers[at % len(speakers)].say())
    async with asyncio.timeout(LAST_WAIT_S):
        for speaker in speakers:
            while speaker.under_way:
                await speaker.heard()
    return time.monotonic() - began


async def obey(speakers: list[Speaker], word: str, *numbers: str) -> float:
    """Run one command; returns the duration."""
    match word:
        case "saturate":
            return await saturate(speakers, float(numbers[0]), *map(int, numbers[1:]))
        case "steady":
            return await steady(speakers, float(numbers[0]), float(numbers[1]))
        case "idle":
            await asyncio.sleep(float(numbers[0]))
            return float(numbers[0])
    raise ValueError(f"unknown command {word}: expected saturate, steady or idle")


async def main(addresses: list[str], sessions: int) -> None:
    """Run commands until stdin ends."""
    channels = [
        grpc.aio.insecure_channel(addresses[at % len(addresses)], OPTIONS)
        for at in range(max(len(addresses), 1 + (sessions - 1) // SESSIONS_A_CHANNEL))
    ]
    speakers = [Speaker(channels[at % len(channels)]) for at in range(sessions)]
    for speaker in speakers:
        await speaker.open()
    # So that no measured job waits for a collection of all modules.
    gc.collect()
    gc.freeze()
    print("READY", flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        for speaker in speakers:
            speaker.rows.clear()
        took = await obey(speakers, *line)
        rows = [row for speaker in speakers for row in speaker.rows]
        print(json.dumps({"jobs": len(rows), "took_s": took, "rows": rows}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses", help="gateways, separated by commas")
    parser.add_argument("--sessions", type=int, default=64)
    given = parser.parse_args()
    uvloop.run(main(given.addresses.split(","), given.sessions))
