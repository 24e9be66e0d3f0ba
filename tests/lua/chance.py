"""The next step of a random walk."""

import random
from collections.abc import Sequence
from typing import Any

from . import scripts as lua
from .model import Node
from .walk import CAPABILITIES, JOBS, NODES, OWNERS, PAIRS, SESSIONS, TENANTS, Step, Walk

SHORT_MS = (500, 500, 1_000, 2_500, 5_000)
LONG_MS = (10_000, 15_000, 15_500, 20_000, 30_000, 60_000)
# The first steps of a walk only bring nodes in.
FLEET_STEPS = 16


class Chance:
    """Draws the next step: mostly what a client would do now, sometimes what none should."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._streams = 0
        self._utterance = 0

    def step(self, walk: Walk) -> Step:
        """The next step of a walk."""
        begun = len(walk.taken) > FLEET_STEPS
        attempts = any(job.attempts for job in walk.model.jobs.values())
        weights = {
            "register": 40 if not begun else 4 if len(walk.model.nodes) > 2 else 20,
            "move": (12 if begun else 90) if walk.ways else 0,
        }
        if begun:
            weights |= {
                "advance": 10,
                "die": 2 if walk.ways else 0,
                "beat": 12,
                "health": 3,
                "remove": 4,
                "sweep": 1,
                "select": 4,
                "allocate": 30,
                "reserve": 3,
                "bind": 7,
                "clear": 1,
                "take_over": 1,
                "lose": 2,
                "end_job": 4,
            }
        if begun and attempts:
            weights |= {"commit": 16, "release": 9, "complete": 12}
        name = self._random.choices(list(weights), list(weights.values()))[0]
        return Step(name, getattr(self, f"_{name}")(walk))

    def _one(self, values: Sequence[Any]) -> Any:
        return self._random.choice(values)

    def _often(self, chance: float) -> bool:
        return self._random.random() < chance

    def _advance(self, walk: Walk) -> dict[str, Any]:
        return {"ms": self._one(SHORT_MS if self._often(0.85) else LONG_MS)}

    def _register(self, walk: Walk) -> dict[str, Any]:
        name = self._one(NODES)
        node = walk.model.nodes.get(name)
        same_process = node is not None and self._often(0.8)
        repeat = same_process and self._often(0.3)
        if not repeat:
            self._streams += 1
        can = self._one(list(CAPABILITIES))
        if node and self._often(0.6 if not repeat else 1):
            can = next(can for can, able in CAPABILITIES.items() if able == node.declared)
        running = self._running(walk, name) if node else []
        finished = [lease for lease in running if self._often(0.3)]
        return {
            "node": name,
            "can": can,
            "stream": node.stream if node and repeat else f"s{self._streams}",
            "incarnation": node.incarnation if node and same_process else f"i{self._streams}",
            "most": node.most if node and self._often(0.6) else self._one((1, 2, 3)),
            "owner": self._one(("d1", "d2")),
            "load": self._load(),
            "node_owner": self._owner(name, node, repeat),
            "running": [lease for lease in running if lease not in finished],
            "finished": finished,
        }

    def _owner(self, name: str, node: Node | None, repeat: bool) -> str:
        """Mostly the same: x of the first three nodes, y of the fourth, none of the last."""
        if node and (repeat or self._often(0.9)):
            return node.node_owner
        return str(
            self._one(("", *OWNERS))
            if self._often(0.1)
            else ("x", "x", "x", "y", "")[NODES.index(name)]
        )

    def _running(self, walk: Walk, name: str) -> list[str]:
        """Mostly what the node runs, sometimes less, sometimes what it should not."""
        node = walk.model.nodes[name]
        leases = [lease for lease in node.running if self._often(0.9)]
        for job, known in walk.model.jobs.items():
            for number, attempt in known.attempts.items():
                lease = f"{job}:{number}"
                if lease not in leases and self._often(0.5 if attempt.node == name else 0.03):
                    leases.append(lease)
        if self._often(0.1):
            leases.append(f"{self._one(JOBS)}:{self._one((1, 2, 3))}")
        return list(dict.fromkeys(leases))

    def _load(self) -> float:
        return float(self._one((0.0, 0.0, 0.0, 0.5, 0.95)))

    def _move(self, walk: Walk) -> dict[str, Any]:
        return {"way": self._random.randrange(len(walk.ways))}

    _die = _move

    def _beat(self, walk: Walk) -> dict[str, Any]:
        names = list(walk.model.nodes) if self._often(0.8) else [self._one(NODES)]
        if self._often(0.1):
            names.append(self._one(NODES))
        beats = []
        for name in names:
            node = walk.model.nodes.get(name)
            running = self._running(walk, name) if node and self._often(0.6) else []
            health = self._one((2, 3)) if self._often(0.05) else self._one((0, 1, 1))
            beats.append((name, self._stream(node), health, self._load(), running))
        return {"beats": beats}

    def _stream(self, node: Node | None, whichever: float = 0.0) -> str:
        """The node's own connection, sometimes an old one, or '' for whichever is current."""
        if self._often(whichever):
            return ""
        if node and self._often(0.9):
            return node.stream
        return f"s{self._random.randint(1, max(1, self._streams))}"

    def _health(self, walk: Walk) -> dict[str, Any]:
        name = self._one(NODES)
        stream = self._stream(walk.model.nodes.get(name), 0.4)
        if self._often(0.5):
            health = self._one((lua.READY, lua.READY, lua.READY, lua.DRAINING))
            return {"node": name, "health": health, "stream": stream, "by_operator": True}
        health = self._one((1, 1, 1, 1, 2, 3, 4))
        return {"node": name, "health": health, "stream": stream, "by_operator": False}

    def _remove(self, walk: Walk) -> dict[str, Any]:
        out = [name for name, node in walk.model.nodes.items() if node.is_out]
        name = self._one(out) if out and self._often(0.4) else self._one(NODES)
        silent_ms = self._one((0, 5_000, 5_000, 40_000))
        stream = "" if silent_ms else self._stream(walk.model.nodes.get(name), 0.3)
        forget = self._often(0.5)
        return {"node": name, "stream": stream, "forget": forget, "silent_ms": silent_ms}

    def _sweep(self, walk: Walk) -> dict[str, Any]:
        return {}

    def _want(self, walk: Walk) -> dict[str, Any]:
        src, tgt = self._one(PAIRS)
        want: dict[str, Any] = {"src": src, "tgt": tgt, "text": tgt == "fr" or self._often(0.15)}
        if self._often(0.1):
            want["stages"] = lua.TONE
        if self._often(0.1):
            want["preferred"], want["strict"] = self._one(NODES), self._often(0.4)
        if self._often(0.7):
            want["instance"] = self._one(("d1", "d2"))
        if self._often(0.7):
            want["session"] = self._one(SESSIONS)
            want["tenant"] = self._tenant()
        if self._often(0.15):
            want["exclude"] = tuple(self._random.sample(NODES, self._one((1, 2))))
        return want

    def _select(self, walk: Walk) -> dict[str, Any]:
        return {"seed": self._random.getrandbits(31), "want": self._want(walk)}

    def _allocate(self, walk: Walk) -> dict[str, Any]:
        free = [job for job in JOBS if job not in walk.model.jobs]
        job = self._one(free) if free and self._often(0.6) else self._one(JOBS)
        known = walk.model.jobs.get(job)
        attempt = self._one((1, known.latest, known.latest + 1)) if known else 1
        self._utterance += self._often(0.7)
        return {
            "job": job,
            "attempt": max(1, attempt),
            "seed": self._random.getrandbits(31),
            "want": self._want(walk),
            "utterance": max(0, self._utterance - self._one((0, 0, 0, 1, 2))),
            "reason": self._one((0, 1, 2, 3, 3, 3, 3, 3, 4, 5, 6)),
            "may_wait": self._often(0.3),
            "session_epoch": self._one((0, 0, 1, 2, 3)),
            "home": self._one(("d1", "d2")),
        }

    def _attempt(self, walk: Walk, *states: str) -> dict[str, Any]:
        """An attempt: mostly one in the given states, on its own node."""
        found = [
            (job, number)
            for job, known in walk.model.jobs.items()
            for number, attempt in known.attempts.items()
            if attempt.state in states or self._often(0.1)
        ]
        job, number = (self._one(JOBS), self._one((1, 2, 3)))
        if found and self._often(0.95):
            job, number = self._one(found)
        node = self._one(NODES) if self._often(0.05) else ""
        return {"node": node, "job": job, "attempt": number}

    def _reserve(self, walk: Walk) -> dict[str, Any]:
        step = self._attempt(walk, "reserved", "released")
        known = walk.model.jobs.get(step["job"])
        step["node"] = self._one(NODES)
        if known and self._often(0.5):
            step["attempt"] = known.latest + 1
        return step

    def _commit(self, walk: Walk) -> dict[str, Any]:
        return self._attempt(walk, "reserved")

    def _release(self, walk: Walk) -> dict[str, Any]:
        final = self._one(("", "", "", "", "", "failed", "cancelled"))
        how = {"fault": self._often(0.6), "final": final, "may_run": self._often(0.5)}
        return self._attempt(walk, "reserved") | how

    def _complete(self, walk: Walk) -> dict[str, Any]:
        outcome = self._one(("done", "done", "failed", "failed", "timed_out", "cancelled"))
        final = "" if outcome == "done" else self._one(("", "", "", "", "failed", "cancelled"))
        how = {"outcome": outcome, "final": final, "bad_job": self._often(0.2)}
        return self._attempt(walk, "running") | how | {"kind": self._one((0, 1, 2))}

    def _end_job(self, walk: Walk) -> dict[str, Any]:
        known = [job for job, each in walk.model.jobs.items() if not each.over or self._often(0.3)]
        return {
            "job": self._one(known) if known and self._often(0.8) else self._one(JOBS),
            "state": self._one(("failed", "cancelled", "unplaced", "unplaced")),
            "home": self._one(("d1", "d2")),
            "error": self._one(("e1", "e2")),
            "reason": self._one((7, 8)),
        }

    def _bind(self, walk: Walk) -> dict[str, Any]:
        held = [key for key, turn in walk.model.turns.items() if turn.kind == "timeout"]
        if held and self._often(0.3):
            key = self._one(held)
            turn = walk.model.turns[key]
            again = {"node": turn.node, "kind": turn.kind, "utterance": turn.utterance}
            return {"turn": key, **again}
        return {
            "turn": (self._tenant(), self._one(SESSIONS), *self._one(PAIRS)),
            "node": self._one(NODES),
            "kind": self._one(("timeout", "timeout", "max_duration")),
            "utterance": max(0, self._utterance - self._one((0, 0, 0, 1, 2))),
        }

    def _clear(self, walk: Walk) -> dict[str, Any]:
        pairs = self._random.sample(sorted(set(PAIRS)), self._one((1, 2)))
        return {"tenant": self._tenant(), "session": self._one(SESSIONS), "pairs": pairs}

    def _tenant(self) -> str:
        return TENANTS[self._often(0.2)]

    def _take_over(self, walk: Walk) -> dict[str, Any]:
        return {"session": self._one(SESSIONS)}

    def _lose(self, walk: Walk) -> dict[str, Any]:
        return self._attempt(walk, "running") | {"record": self._often(0.4)}
