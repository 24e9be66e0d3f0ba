"""One who speaks to a room, for `rooms.py`, which runs this as a process.

It opens its session, prints READY, and then reads commands from stdin. `say COUNT EVERY_S` says
that many utterances of 32 KiB, one each EVERY_S seconds, and waits for all receipts. The answer is
one line of JSON: how long that took, and by receipt the languages that were delivered.
"""

import argparse
import asyncio
import json
import sys

import grpc
import uvloop

from lingua_scheduler.v1 import common_pb2, session_pb2, session_pb2_grpc

SPOKEN = "en"
LANGUAGES = ("de", "es", "fr", "it", "pt")
AUDIO = bytes(32 * 1024)
OPTIONS = (("grpc.max_receive_message_length", -1),)
RECEIPT_S = 30.0


class Speaker:
    """A session of the room."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream = session_pb2_grpc.SessionGatewayStub(channel).Converse()
        self._seq = 0
        self._receipts: asyncio.Queue[list[str]] = asyncio.Queue()

    async def open(self, room_id: str, token: str) -> None:
        """Returns when the session is open."""
        new = session_pb2.NewSession(
            room=session_pb2.RoomSpeaker(room_id=room_id, join_token=token, language=SPOKEN),
            audio_format=common_pb2.AudioFormat(
                encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16_000, channels=1
            ),
        )
        await self._stream.write(session_pb2.ClientMessage(open=session_pb2.Open(new=new)))
        message = await self._stream.read()
        assert isinstance(message, session_pb2.ServerMessage)
        assert message.events[0].HasField("opened"), message
        self._reading = asyncio.create_task(self._read())

    async def say(self, count: int, every_s: float) -> dict[str, object]:
        """Says so many utterances; returns when all have a receipt."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(count):
            await asyncio.sleep(began + number * every_s - loop.time())
            chunk = session_pb2.AudioChunk(seq=self._seq, data=AUDIO, is_final=True)
            await self._stream.write(session_pb2.ClientMessage(audio=chunk, results_seen=self._seq))
            self._seq += 1
        async with asyncio.timeout(RECEIPT_S):
            delivered = [await self._receipts.get() for _ in range(count)]
        # The last one has its time, too, so that its cost is part of what is measured.
        await asyncio.sleep(began + count * every_s - loop.time())
        return {"took_s": loop.time() - began, "delivered": delivered}

    async def _read(self) -> None:
        while isinstance(message := await self._stream.read(), session_pb2.ServerMessage):
            for event in message.events:
                if event.HasField("result"):
                    self._receipts.put_nowait(list(event.result.room.delivered))


async def main(address: str, room_id: str, token: str) -> None:
    """Runs commands until stdin ends."""
    speaker = Speaker(grpc.aio.insecure_channel(address, OPTIONS))
    await speaker.open(room_id, token)
    print("READY", flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        print(json.dumps(await speaker.say(int(line[1]), float(line[2]))), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address", help="of a gateway")
    parser.add_argument("room")
    parser.add_argument("token")
    given = parser.parse_args()
    uvloop.run(main(given.address, given.room, given.token))
