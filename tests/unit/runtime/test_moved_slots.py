"""What the answers of a cluster node about a slot say about the call and the slot's owner."""

import pytest
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from lingua_scheduler.services.runtime.redis.primary import PrimaryFinder, is_elsewhere
from lingua_scheduler.services.runtime.settings.redis_url import Address, parse_redis_url

ASKED = ("asked", 7000)


@pytest.mark.parametrize(
    "error",
    [
        MovedError("6349 host:7001"),
        AskError("6349 script-host:7001"),
        TryAgainError("Multiple keys request during rehashing of slot"),
    ],
)
def test_a_call_that_a_node_refused_because_of_its_slot_did_not_run(error: ResponseError) -> None:
    assert is_elsewhere(error)


@pytest.mark.parametrize(
    "error",
    [
        # The script may have written before.
        TryAgainError("Multiple keys request script: 0f18, on @user_script:1."),
        ResponseError("Script attempted to access a non local key in a cluster node script: 0f18"),
        ReadOnlyError("You can't write against a read only replica."),
        ClusterDownError("The cluster is down"),
    ],
)
def test_of_other_errors_nothing_is_known(error: ResponseError) -> None:
    assert not is_elsewhere(error)


@pytest.mark.parametrize(
    ("error", "owner"),
    [
        (MovedError("6349 10.0.0.1:7001"), ("10.0.0.1", 7001)),
        (AskError("6349 ::1:7001"), ("::1", 7001)),
        # A node that does not know its host: it is the one that was asked.
        (MovedError("6349 :7001"), ("asked", 7001)),
    ],
)
async def test_the_server_that_an_answer_names_is_found_next(
    error: ResponseError, owner: Address
) -> None:
    target = parse_redis_url("redis+cluster://seed:7000")
    finder = PrimaryFinder(target=target, prefix="lingua:{c7}")
    finder.note(error, ASKED)
    assert await finder.find() == owner
