"""The scripts of rooms in random order, against the model; and that the model test can fail.

A failure prints the seed and the steps that it needs. Longer runs:
    LINGUA_MODEL_EXAMPLES=5000 LINGUA_MODEL_STEPS=150 pytest tests/lua/test_room_model.py
"""

import os
from collections.abc import Iterator, Mapping

import pytest
import redis

from .model import Broken
from .room_chance import Chance, Step
from .room_walk import RoomWalk
from .scripts import clocked_scripts
from .test_sessions import forget

EXAMPLES = int(os.environ.get("LINGUA_MODEL_EXAMPLES", "36"))
STEPS = int(os.environ.get("LINGUA_MODEL_STEPS", "120"))
SEED = int(os.environ.get("LINGUA_MODEL_SEED", "1"))

# Faults, each put into the scripts in memory: what it is, and the lines with what they become.
FAULTS: dict[str, tuple[str, str]] = {
    "a member that changes its language counts twice": (
        "if before then\n  wants_count(counts, before, -1)\nend",
        "",
    ),
    "a member that has left still counts": (
        "wants_count(counts, before, -1)\nredis.call('HDEL', members, member)",
        "redis.call('HDEL', members, member)",
    ),
    "a room has any number of members": (">= known.max_members then", ">= 99 then"),
    "a room has any number of speakers": ("speakers >= known.max_speakers", "false"),
    "a room has any number of languages": (
        "#wants_languages(counts) >= known.max_languages",
        "false",
    ),
    "members of dead gateways stay": ("members_drop(P, room, gone)", ""),
    "a long outage of Redis removes everybody": (
        "if #ended == redis.call('ZCARD', gateways) then",
        "if false then",
    ),
    "the gateway that calls is taken for dead": ("if gateway ~= alive then", "if true then"),
    "a late join undoes a later one": ("tonumber(before.change) > tonumber(change)", "false"),
    "a late leave removes a member that is back": (" or tonumber(before.change) > change", ""),
    "a repeated join is answered anew": ("(rejoin or before.change == change)", "false"),
    "a member is taken back from its new gateway": (
        "if before and not is_here and rejoin then",
        "if false then",
    ),
    "nobody hears of a change": ("'version', 1)\n  room_news(P, room)", "'version', 1)"),
    "a room without members never ends": ("if here == 0 then", "if false then"),
    "a closed room can be restored": (
        "if known[1] then\n  if known",
        "if known[4] then\n  if known",
    ),
    "a closed room keeps its outcomes": ("lanes_delete(P, room)\n", "\n"),
    "a repeated cut gets another room index": ("session_said(key, known, cuts.index)", "{}"),
    "what a room said of a cut is never deleted": ("names[#names + 1] = 'said:' .. index", ""),
    "a cut goes to languages that it is not for": (
        "if cuts.only[i] == '' or is_in[language] then",
        "if true then",
    ),
    "an outcome overtakes an earlier one": ("if not first or first > index then", "if true then"),
    "a second outcome replaces one that waits": (
        "if before then\n  return before == entry",
        "if false then\n  return before == entry",
    ),
    "what has waited is not released": (
        "  lane_release(P, room, language, heads[2], last, captions_max, speech_ms, idle_ms)\n"
        "  room_news",
        "  room_news",
    ),
    "nothing is ever overdue": ("if not index or due > now then", "if true then"),
    "an outcome that a failover made unknown is refused": (
        "if is_lost then\n  room_raise_next",
        "if is_lost then return 'late' end\nif false then\n  room_raise_next",
    ),
    "such an outcome leaves its index to others": (
        "room_raise_next(P, room, known, index + 1)",
        "",
    ),
    "a renewal does not raise the next index": (
        "room_raise_next(P, room, known, floor)\n  local counts",
        "local counts",
    ),
    "captions are kept for ever": ("'MAXLEN', '=', captions_max, ", ""),
    "an outcome does not name the previous one": ("last >= 0 and digits_of(last) or ''", "''"),
    "speech expires while its outcome waits": (
        "math.max(tonumber(speech_ms), tonumber(idle_ms))",
        "speech_ms",
    ),
    "speech that has waited is kept for too long": (
        "redis.call('PEXPIRE', speech_key(P, room, language, index), speech_ms)",
        "",
    ),
}


@pytest.fixture(autouse=True)
def _forgotten(client: redis.Redis, prefix: str) -> Iterator[None]:
    yield
    forget(client, prefix)


def failing(client: redis.Redis, prefix: str, steps: list[Step], sources: Mapping[str, str]) -> str:
    """How a walk fails; '' if it does not."""
    try:
        RoomWalk(client, prefix, sources).run(steps)
    except (Broken, redis.exceptions.ResponseError) as error:
        return str(error)
    return ""


def cut_down(
    client: redis.Redis, prefix: str, steps: list[Step], sources: Mapping[str, str]
) -> list[Step]:
    """Leaves out steps for as long as the walk still fails."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if failing(client, prefix, fewer, sources):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


def drawn(seed: int) -> list[Step]:
    chance = Chance(seed)
    return [chance.step() for _ in range(STEPS)]


@pytest.mark.timeout(max(300, EXAMPLES * STEPS // 30))
@pytest.mark.parametrize("share", range(3))
def test_whatever_gateways_do_and_redis_loses_the_scripts_do_what_the_model_says(
    client: redis.Redis, prefix: str, share: int
) -> None:
    sources = clocked_scripts()
    for seed in range(SEED + share, SEED + EXAMPLES, 3):
        steps = drawn(seed)
        if failing(client, prefix, steps, sources):
            steps = cut_down(client, prefix, steps, sources)
            shown = "".join(f"\n    {step}," for step in steps)
            why = failing(client, prefix, steps, sources)
            pytest.fail(f"seed {seed}, {len(steps)} steps:{shown}\n{why}")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_notices_if(client: redis.Redis, prefix: str, fault: str) -> None:
    line, instead = FAULTS[fault]
    sources = clocked_scripts()
    assert any(line in source for source in sources.values()), f"no script has {line!r}"
    wrong = {name: source.replace(line, instead) for name, source in sources.items()}
    assert any(failing(client, prefix, drawn(seed), wrong) for seed in range(100))
