"""Which directions have a label of their own."""

from lingua_scheduler.services.pool_service.fleet.directions import Direction, Directions
from lingua_scheduler.v1 import common_pb2, pool_pb2


def asks(src: str, tgt: str, *, speech: bool = True) -> pool_pb2.NodeCriteria:
    pair = common_pb2.LanguagePair(src=src, tgt=tgt)
    return pool_pb2.NodeCriteria(pair=pair, require_tts=speech)


def test_a_direction_that_a_node_serves_has_labels_of_its_own() -> None:
    directions = Directions()
    directions.learn(["zh:en", "text:zh:de", "text:fr:*"])

    assert directions.asked_for(asks("ZH", "en")) == Direction("speech", "zh", "en")
    assert directions.asked_for(asks("zh", "de", speech=False)) == Direction("text", "zh", "de")
    assert directions.asked_for(asks("fr", "it", speech=False)) == Direction("text", "fr", "any")


def test_what_clients_ask_for_makes_no_label() -> None:
    directions = Directions()
    for each in range(100):
        wanted = asks(f"x{each}", "en")
        assert directions.asked_for(wanted) == Direction("speech", "other", "other")
    assert directions.asked_for(asks("zh", "en", speech=False)) == Direction(
        "text", "other", "other"
    )


def test_there_are_never_more_labels_than_the_limit() -> None:
    directions = Directions(limit=2)
    directions.learn(["a:b", "b:a"])
    directions.learn(["c:d", "b:a", "text:c:d"])

    assert directions.of_pool("a:b") == Direction("speech", "a", "b")
    assert directions.of_pool("b:a") == Direction("speech", "b", "a")
    assert directions.of_pool("c:d") == Direction("speech", "other", "other")
    assert directions.of_pool("text:c:d") == Direction("text", "other", "other")
