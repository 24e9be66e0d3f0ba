"""The frames that take the shortest way: `plain_heads` knows them, and only them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.web.frames import (
    PLAIN_HEADER,
    directions_of,
    plain_heads,
    read_audio,
)
from lingua_scheduler.v1 import common_pb2, session_pb2

EN, ES = "EN", "es"
FIXED = session_pb2.NewSession(direction=common_pb2.LanguagePair(src=EN, tgt=ES))
BOTH = session_pb2.NewSession(conversation=session_pb2.LanguageSet(a=EN, b=ES))
THERE, BACK = Direction("en", "es"), Direction("es", "en")


@pytest.mark.parametrize(
    ("session", "heads"),
    [
        (FIXED, {b"\x01\x00\x00\x00": THERE}),
        (BOTH, {b"\x01\x02\x00\x00": THERE, b"\x01\x04\x00\x00": BACK}),
    ],
    ids=["fixed", "conversation"],
)
def test_a_plain_frame_has_a_direction_of_its_session_and_no_flag(
    session: session_pb2.NewSession, heads: dict[bytes, Direction]
) -> None:
    assert plain_heads(session) == heads
    for kind in range(4):
        for flags in range(256):
            for zero in (b"\0\0", b"\0\1", b"\1\0"):
                head = bytes([kind, flags]) + zero
                try:
                    chunk = read_audio(head + bytes(16), directions_of(session))
                except InvalidMessageError:
                    assert head not in heads
                    continue
                named = Direction(chunk.direction.src.lower(), chunk.direction.tgt.lower())
                if head in heads:
                    assert not chunk.is_final
                    assert named == (heads[head] if session is BOTH else ("", ""))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=20))
def test_a_plain_frame_is_read_as_any_other(seq: int, client_ms: int, data: bytes) -> None:
    frame = PLAIN_HEADER.pack(b"\x01\x00\x00\x00", seq, client_ms) + data

    chunk = read_audio(frame, directions_of(FIXED))

    assert PLAIN_HEADER.unpack_from(frame)[1:] == (chunk.seq, chunk.client_ms)
    assert frame[PLAIN_HEADER.size :] == chunk.data
