"""Chunks are kept until they are acknowledged, and longer if a node holds them."""

from lingua_scheduler.sdk.session.protocol.kept_chunks import KeptChunks


def kept_chunks(count: int, max_held_bytes: int = 1000) -> KeptChunks:
    """Returns this many chunks of two bytes, all written."""
    kept = KeptChunks(max_held_bytes)
    for _ in range(count):
        kept.add(b"00")
        kept.take()
    return kept


def written(kept: KeptChunks) -> list[int]:
    seqs = []
    while chunks := kept.take():
        seqs += [chunk.seq for chunk in chunks]
    return seqs


def test_what_is_acknowledged_is_forgotten() -> None:
    kept = kept_chunks(4)
    assert kept.ack(3)
    assert (kept.first, kept.acknowledged, len(kept), kept.size) == (3, 3, 1, 2)
    assert not kept.ack(3)


def test_what_a_node_holds_is_kept_and_counts_as_acknowledged() -> None:
    kept = kept_chunks(4)
    kept.ack(3, keep_seq=1)
    assert (kept.first, kept.acknowledged) == (1, 3)
    assert (len(kept), kept.size, kept.held_size) == (1, 2, 4)


def test_it_is_forgotten_when_the_server_does_not_ask_for_it_any_more() -> None:
    kept = kept_chunks(4)
    kept.ack(3, keep_seq=1)
    kept.ack(4)
    assert (kept.first, len(kept), kept.size, kept.held_size) == (4, 0, 0, 0)


def test_a_later_acknowledgement_cannot_ask_for_what_is_forgotten() -> None:
    kept = kept_chunks(4)
    kept.ack(2)
    kept.ack(4, keep_seq=0)
    assert (kept.first, kept.acknowledged) == (2, 4)


def test_a_new_stream_may_want_it_again() -> None:
    kept = kept_chunks(4)
    kept.ack(3, keep_seq=1)
    kept.begin_at(1)
    assert kept.to_repeat == 3
    assert written(kept) == [1, 2, 3]
    # It is kept for the next stream.
    assert (kept.first, len(kept)) == (1, 1)


def test_a_new_stream_that_does_not_want_it_lets_it_go() -> None:
    kept = kept_chunks(4)
    kept.ack(3, keep_seq=1)
    kept.begin_at(3)
    assert written(kept) == [3]
    assert (kept.first, kept.held_size) == (3, 0)


def test_only_so_much_is_kept_and_the_oldest_goes_first() -> None:
    kept = kept_chunks(6, max_held_bytes=4)
    kept.ack(5, keep_seq=0)
    assert (kept.first, kept.held_size, len(kept)) == (3, 4, 1)


def test_what_is_not_acknowledged_is_kept_however_much_it_is() -> None:
    kept = kept_chunks(6, max_held_bytes=4)
    kept.ack(1, keep_seq=0)
    assert (kept.first, len(kept)) == (0, 5)
