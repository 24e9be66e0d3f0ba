"""All scripts together, in random order, against the model; and that the model test can fail.

A failure prints the seed and the shortest walk that was found to fail. Longer runs:
    LINGUA_MODEL_EXAMPLES=5000 LINGUA_MODEL_STEPS=100 pytest tests/lua/test_model.py
and LINGUA_MODEL_SEED=123 starts at another seed.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import redis

from .chance import Chance
from .model import Broken
from .scripts import clocked_scripts
from .walk import LIMITS, Step, Walk

EXAMPLES = int(os.environ.get("LINGUA_MODEL_EXAMPLES", "140"))
STEPS = int(os.environ.get("LINGUA_MODEL_STEPS", "80"))
SEED = int(os.environ.get("LINGUA_MODEL_SEED", "1"))
# Test cases that the walks are divided among, so that they spread over workers.
SHARES = 4

# Faults, each put into the scripts in memory: what it is, and the lines with what they become.
FAULTS: dict[str, dict[str, str]] = {
    "a draw takes full nodes": {
        "if not why and is_full(used, max, kept, now) then": "if false then",
        "if not is_full(node.used, node.max, node.kept, now) then return": "if id then return",
    },
    "a named node is taken though it is full": {
        "if is_full(node.used, node.max, for_turn and 0 or node.kept, now) then": "if false then"
    },
    "a result that waits at its node has no lease": {"and not has_result[member]": ""},
    "no slot is kept for a turn": {"node.kept = now + KEEP_SLOT_MS": ""},
    "the slot of an attempt that the node may run is free": {"and may_run": "and false"},
    "an attempt that was given up is not stopped": {
        "      if is_given_up(P, member) then": "if false then"
    },
    "a node that is back without an attempt keeps its slot": {
        "and is_given_up(P, member) then": "and false then"
    },
    "ended leases stay": {"redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now)": ""},
    "a late commit needs no room": {"elseif node.used < node.max then": "elseif true then"},
    "the cache is not written": {
        "slots_settle(P, node_id, node, now)\n  live_put(P, node_id, node)": ""
    },
    "a release frees nothing": {"if not left then\n": "if false then\n"},
    "bindings are not cleared": {"redis.call('DEL', key)\n": "\n"},
    "tenants share the turns of a session": {
        "P .. ':turn:' .. tenant .. ':'": "P .. ':turn:' .. 't1' .. ':'"
    },
    "a node may hold a turn for ever": {
        "if held_in_row_max > 0 and holds > held_in_row_max then": "if false then"
    },
    "a repeat counts as another hold": {
        "if kind == 'timeout' and not is_repeat then": "if kind == 'timeout' then"
    },
    "a row of holds has no end": {"goes_on and holds or 0": "holds"},
    "an earlier utterance moves the binding": {"utterance >= last_turn": "true"},
    "bindings have no end": {"redis.call('PEXPIRE', key, ttl_ms)\nend": "end"},
    "shards are not filled up": {"if shard ~= last then": "if false then"},
    "an old connection moves pools": {"if node.epoch ~= epoch then": "if false then"},
    "drained nodes are chosen": {" or drained == DRAINED": ""},
    "the end of a drain leaves its progress": {
        "redis.call('HDEL', P .. ':node:' .. node_id, 'drained_ms', 'drained_used')": ""
    },
    "a drain counts leases that have ended": {
        "local now = now_ms()\n    slots_settle(P, node_id, node, now)": "local now = now_ms()"
    },
    "silent nodes are chosen": {"if beat <= now - want.stale_ms then": "if false then"},
    "ejected nodes are chosen": {"if ejected > now then": "if false then"},
    "any number of nodes may be ejected": {"if not drawn.left_out[id] then why = nil end": ""},
    "one session's failures eject a node": {
        "if node.failures > 0 and node.blamed == blamed then return end": ""
    },
    "bad jobs count against the node": {"elseif is_fault then": "else"},
    "load does not count": {"load < best_load": "load > best_load"},
    "an allocation is not repeatable": {"or attempt <= number)": "or false)"},
    "two attempts win": {"and attempt_alive(P, job, winner, now) then": "and false then"},
    "an end counts twice": {"if not ended and (not at or at == node_id) then": "if true then"},
    "a dispatcher ends a job of another": {"if answers and answers ~= home then": "if false then"},
    "the last end of a job stays": {
        "if state == 'done' or (JOB_OVER[state] and told) then": "if state == 'done' then"
    },
    "an end stays when the job begins anew": {"redis.call('HDEL', record, 'error', 'steps')": ""},
    "a late end of an attempt undoes the job's": {
        "state ~= 'unplaced' and (not winner": "(not winner"
    },
    "beats revive what has ended": {"if not state then return": "if true then return"},
    "an owner brings any number of nodes": {
        "if max_nodes > 0 and nodes + other_nodes + 1 > max_nodes then": "if false then"
    },
    "an owner brings any number of slots": {
        "if max_slots > 0 and used + other_slots + slots > max_slots then": "if false then"
    },
    "nodes that are out count for their owner": {
        "if owner and owner ~= '' then\n  owner_drop(P, owner, node_id)": "if false then"
    },
    "an owner without nodes stays in a pool": {
        "elseif left == 0 then\n    local key": "elseif false then\n    local key"
    },
    "the only node of an owner keeps its own entry when another joins": {
        "elseif count == 2 then": "elseif false then"
    },
    "an owner with one node left keeps the entry of several": {
        "if left == 1 then": "if false then"
    },
    "the shard of an owner's entry is forgotten when it moves": {
        "redis.call('HSET', key, name, shard)": ""
    },
    "a node keeps its place when its owner changes": {
        "if places[i] and joined_as ~= owner then": "if false then"
    },
    "moves are not recorded": {"nearby_note(found.move)": ""},
    "a dispatcher gains any number of jobs by moves": {
        "if (move.gained or 0) >= LEAD then return nil end": ""
    },
    "moves of nodes with and without an owner share an account": {
        "local mark = is_owned and '@' or ''": "local mark = ''"
    },
    "a job is moved to the busiest node of an owner": {
        "if not about_as_idle(want, now, found, best) then id = nil end": ""
    },
    "a job is moved to a node of any dispatcher": {
        "and (not instance or live_owner(record) == instance)": ""
    },
    "silence counts while nobody is heard": {"math.max(node.beat, heard_since)": "node.beat"},
    "the log has a wrong time of creation": {"begins and now or known[4] }": "now }"},
    "a repeated release is in the log": {"if first_time or ends then": "if state then"},
    "a job's end by its last attempt is not in the log": {
        "if first_time or ends then": "if false then"
    },
    "an end that is repeated is in the log again": {
        "local is_change = state ~= was or told ~= why": "local is_change = true"
    },
    "a late end of an attempt has the kind of the result": {
        "local won = outcome == 'done' and not was_over and kind ~= '0'": "local won = kind ~= '0'"
    },
    "a live node is replaced": {"and known[1] ~= incarnation": "and false"},
}


class Runner:
    """Makes walks, and cuts down those that fail."""

    def __init__(
        self,
        client: redis.Redis,
        prefix: str,
        sources: Mapping[str, str],
        *,
        timeout_binds: bool = False,
    ) -> None:
        self._client = client
        self._prefix = prefix
        self._sources = sources
        self._limits = replace(LIMITS, timeout_binds=timeout_binds)
        self._walks = 0

    def run(self, seed: int, steps: int) -> None:
        """One random walk. Raises with the shortest failing walk that was found."""
        walk = self._walk()
        chance = Chance(seed)
        try:
            for _ in range(steps):
                walk.take(chance.step(walk))
            walk.end()
        except (Broken, redis.ResponseError, KeyError) as error:
            shortest, last = self._shrunk(walk.taken, error)
            shown = "\n".join(f"    {step}," for step in shortest)
            raise Broken(f"seed {seed}, {len(shortest)} steps:\n{shown}\n  {last}") from None

    def catches(self, walks: int, steps: int) -> bool:
        """Whether one of so many walks fails; it is not cut down."""
        for seed in range(walks):
            walk, chance = self._walk(), Chance(seed)
            try:
                for _ in range(steps):
                    walk.take(chance.step(walk))
                walk.end()
            except (Broken, redis.ResponseError, KeyError):
                return True
        return False

    def fails(self, steps: Sequence[Step]) -> Exception | None:
        """What goes wrong when these steps are taken, if anything does."""
        walk = self._walk()
        try:
            for step in steps:
                walk.take(step)
            walk.end()
        except (Broken, redis.ResponseError, KeyError) as error:
            return error
        return None

    def _walk(self) -> Walk:
        self._walks += 1
        return Walk(
            self._client,
            f"{self._prefix}:{self._walks}",
            sources=self._sources,
            limits=self._limits,
        )

    def _shrunk(self, steps: list[Step], error: Exception) -> tuple[list[Step], Exception]:
        """Leaves out steps, many at once and then one by one, as long as it still fails.

        A step may be needed only by one that is left out after it, so single steps are tried until
        none can go.
        """
        size = len(steps) // 2
        while size:
            at, before = 0, len(steps)
            while at < len(steps):
                fewer = steps[:at] + steps[at + size :]
                if found := self.fails(fewer):
                    steps, error = fewer, found
                else:
                    at += size
            if size > 1 or len(steps) == before:
                size //= 2
        return steps, error


@pytest.mark.timeout(max(120, EXAMPLES * STEPS // 50))
@pytest.mark.parametrize("share", range(SHARES))
def test_whatever_clients_do_and_wherever_they_die_the_scripts_do_what_the_model_says(
    client: redis.Redis, prefix: str, share: int
) -> None:
    sources = clocked_scripts()
    for timeout_binds in (False, True):
        runner = Runner(client, prefix, sources, timeout_binds=timeout_binds)
        for seed in range(SEED + share, SEED + EXAMPLES, SHARES):
            if seed % 5 == 0 or not timeout_binds:
                runner.run(seed, STEPS)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_the_model_notices_when(client: redis.Redis, prefix: str, fault: str) -> None:
    assert Runner(client, prefix, _with_fault(fault)).catches(walks=100, steps=100)


@pytest.mark.long
def test_a_failing_walk_is_cut_down_to_the_steps_it_needs(client: redis.Redis, prefix: str) -> None:
    runner = Runner(client, prefix, _with_fault("shards are not filled up"))

    def walks() -> None:
        # Redis draws too, so it is not always the same walk that fails first.
        for seed in range(100):
            runner.run(seed, 100)

    with pytest.raises(Broken, match=r"seed \d+, [1-3]?\d steps:\n    Step\(\"register\""):
        walks()


def _with_fault(fault: str) -> dict[str, str]:
    sources = clocked_scripts()
    for line, instead in FAULTS[fault].items():
        assert any(line in source for source in sources.values()), f"no script has {line!r}"
        sources = {name: source.replace(line, instead) for name, source in sources.items()}
    return sources
