"""An upgrade and a roll-back under load: their stages, and the jobs of each mix of releases."""

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.robustness.history import ANY_NODE, ClientHistory, Excuses, History
from tests.robustness.rounds import LEASES_S
from tests.robustness.validate import Violation, validate
from tests.robustness.validate.recovery import waits
from tests.upgrade.deployment import ALL, INSTANCES, Deployment, until
from tests.upgrade.releases import Release
from tests.upgrade.services import Speakers

# Far more than anything here may take.
HEARD_S = 60.0
# For both releases of a service to do something, if all have been heard.
WORKED_S = 15.0
# What to count at each process while both releases serve: something that it does for each job.
METRICS = {
    "pool": "lingua_pool_allocations_total",
    "dispatcher": "lingua_dispatcher_relayed_total",
}


@dataclass
class Stage:
    """A time in which nothing was replaced.

    Attributes:
        serving: which releases serve, by kind: "old", "new" or "mixed".
        until: its end; 0: somebody was not heard.
        wait_s: the longest wait for a text since the stage before, so with the replacement.
        is_outage: nobody served before it.
        done: while both releases of a kind serve, what the processes of each did: by kind and
            release.
    """

    name: str
    serving: dict[str, str]
    since: float
    until: float = 0.0
    wait_s: float = 0.0
    is_outage: bool = False
    done: dict[tuple[str, str], float] = field(default_factory=dict)


@dataclass
class Outcome:
    """What came of a run.

    Attributes:
        mixes: how many jobs passed through each mix of releases.
        kept: the folder with the history and all logs, if there are violations.
    """

    history: History
    stages: list[Stage]
    violations: list[Violation]
    mixes: Counter[str]
    kept: str = ""

    def told(self) -> str:
        """For people."""
        lines = ["    lasts    longest wait for a text"]
        lines += [
            f"{stage.until - stage.since:7.1f} s {stage.wait_s:8.2f} s  {stage.name}"
            for stage in self.stages
        ]
        lines += [f"{count:6}    {mix}" for mix, count in sorted(self.mixes.items())]
        outcomes = [each for client in self.history.clients for each in client.outcomes()]
        missing = sum(each["what"] == "missing" for each in outcomes)
        longest = max(stage.wait_s for stage in self.stages if not stage.is_outage)
        ratio = longest / (self.stages[0].wait_s or longest or 1.0)
        lines.append(
            f"{len(outcomes)} utterances, {missing} missing; longest wait for a text"
            f" {longest:.2f} s, {ratio:.1f} times that before the upgrade"
        )
        lines += [f"VIOLATION {each}" for each in self.violations[:20]]
        if len(self.violations) > 20:
            lines.append(f"and {len(self.violations) - 20} more violations")
        return "\n".join(lines + ([f"kept: {self.kept}"] if self.kept else []))


class Rolling:
    """A deployment with people who talk, from its start to the validation.

    Args:
        deployment: serves the old release.
        seed: of the people, and of crashes.
        crashes: whether a process is killed with -9 in each stage in which both releases serve.
        times: how often everybody is heard in a stage in which both releases serve. In others it is
            once more, since only results of speech that was cut in them are counted.
        is_patient: whether to go on if somebody is not heard.
    """

    def __init__(
        self,
        deployment: Deployment,
        old: Release,
        new: Release,
        *,
        people: int = 3,
        rooms: int = 1,
        seed: int = 7,
        crashes: bool = False,
        times: int = 1,
        is_patient: bool = True,
    ) -> None:
        self.stages: list[Stage] = []
        self._deployment = deployment
        self._releases = (old, new)
        self._options = {"people": people, "rooms": rooms, "seed": seed}
        self._rng = random.Random(seed)
        self._crashes = crashes
        self._times = times
        self._is_patient = is_patient
        self._speakers: list[Speakers] = []

    async def begin(self) -> None:
        """Nodes and people of both releases; returns when all have been heard."""
        await self._deployment.add_nodes(list(self._releases))
        for release in self._releases:
            self._speakers.append(self._deployment.add_speakers(release, **self._options))
        await self._stage("before")

    async def roll(self, release: Release) -> None:
        """Replaces all processes, one after the other, in the order of docs/upgrading.md.

        A roll-back has the same order. So each release of a service meets each of its callers.
        """
        for kind in self._deployment.kinds:
            for at in range(INSTANCES):
                place = f"{kind}-{at}"
                await self._deployment.replace(place, release)
                await self._stage(f"{place} is {release.name}")
                if not (self._is_patient or self.stages[-1].until):
                    return

    async def change_at_once(self, release: Release) -> None:
        """Ends all processes before any other is started: only Redis knows what was."""
        await self._deployment.replace_all(release)
        await self._stage(f"all are {release.name}")
        self.stages[-1].is_outage = True

    async def end(self) -> Outcome:
        """Everybody finishes; validates all that was written down."""
        history = History(name="upgrade", seed=0)
        for ended in await asyncio.gather(
            *(asyncio.to_thread(each.end) for each in self._speakers)
        ):
            history.clients += ended[0]
            history.rooms += ended[1]
        history.leases_left = await self._deployment.leases_left(LEASES_S)
        history.nodes = [node.history() for node in self._deployment.nodes]
        history.logged = self._deployment.faults()
        if self._crashes:
            history.excuses = Excuses(turns=ANY_NODE)
        violations = validate(history)
        violations += [
            Violation("all are heard in every stage", stage.name, "not within the limit")
            for stage in self.stages
            if not stage.until
        ]
        self._add_waits(history.clients)
        return Outcome(
            history=history,
            stages=self.stages,
            violations=violations,
            mixes=self._mixes(history),
            kept=str(_kept(history, self._deployment.logs())) if violations else "",
        )

    async def _stage(self, name: str) -> None:
        """Lasts until everybody has been heard, and, if possible, both releases have worked."""
        serving = {}
        for kind in ("pool", "dispatcher", "gateway"):
            releases = self._deployment.releases(kind)
            serving[kind] = releases.pop() if len(releases) == 1 else "mixed"
        mixed = [kind for kind in METRICS if serving[kind] == "mixed"]
        stage = Stage(name, serving, time.monotonic())
        self.stages.append(stage)
        before = await self._counts(mixed)
        heard = [each.heard() for each in self._speakers]

        times = self._times + ("mixed" not in serving.values())

        def all_heard() -> bool:
            return all(
                told and all(count >= was.get(who, 0) + times for who, count in told.items())
                for was, told in zip(heard, (each.heard() for each in self._speakers), strict=True)
            )

        is_heard = await until(all_heard, HEARD_S if self._is_patient else HEARD_S / 3)
        # Not always possible: if they may choose, all gateways may be at one dispatcher.
        enough = time.monotonic() + WORKED_S
        # The second dispatcher has enough slots of its own, and may relay nothing.
        second = self._deployment.places.get("dispatcher-1")
        spared = second and ("dispatcher", second.release.name)
        while True:
            after = await self._counts(mixed)
            stage.done = {which: count - before[which] for which, count in after.items()}
            worked = all(count for which, count in stage.done.items() if which != spared)
            if worked or time.monotonic() > enough:
                break
            await asyncio.sleep(0.2)
        if is_heard:
            stage.until = time.monotonic()
        if self._crashes and "mixed" in serving.values():
            await self._deployment.crash(self._rng.choice(list(self._deployment.places)))

    async def _counts(self, mixed: Sequence[str]) -> dict[tuple[str, str], float]:
        counts = {}
        for kind in mixed:
            for place, service in self._deployment.places.items():
                if place.startswith((kind, ALL)):
                    count = await service.count(kind, METRICS[kind])
                    counts[kind, service.release.name] = count
        return counts

    def _mixes(self, history: History) -> Counter[str]:
        """How many jobs passed through each mix, by its name."""
        mixes: Counter[str] = Counter()
        for stage in self.stages:
            for client in history.clients:
                self._add_results(mixes, stage, client)
            for node in self._deployment.nodes:
                ended = [each["t"] for each in node.told("finished")]
                count = sum(stage.since <= t <= stage.until for t in ended)
                if stage.serving["dispatcher"] != "mixed":
                    at = stage.serving["dispatcher"]
                    mixes[f"{node.release.name} node at {at} dispatcher"] += count
            for (kind, name), count in stage.done.items():
                other = "new" if name == "old" else "old"
                if kind == "dispatcher":
                    mixes[f"{name} dispatcher relays to {other} dispatcher"] += int(count)
                elif kind == "pool":
                    mixes[f"{name} pool beside {other} pool"] += int(count)
            for kind, serves in stage.serving.items():
                if serves == "mixed":
                    mixes[f"stages with both releases of the {kind}"] += 1
        return mixes

    def _add_waits(self, clients: Sequence[ClientHistory]) -> None:
        every = [each for client in clients for each in waits(client)]
        since = 0.0
        for stage in self.stages:
            until = stage.until or stage.since + HEARD_S
            stage.wait_s = max((wait for t, wait in every if since < t <= until), default=0.0)
            since = until

    @staticmethod
    def _add_results(mixes: Counter[str], stage: Stage, client: ClientHistory) -> None:
        """Adds the utterances that were cut and answered in a stage."""
        cut = {each["index"]: each["t"] for each in client.events if each["what"] == "finalized"}
        count = sum(
            stage.since <= cut.get(each["index"], 0.0) and each["t"] <= stage.until
            for each in client.results()
        )
        at = stage.serving
        if at["gateway"] != "mixed":
            mixes[f"{client.name.partition('-')[0]} client at {at['gateway']} gateway"] += count
        for caller, callee in (("gateway", "dispatcher"), ("dispatcher", "pool")):
            if "mixed" not in (at[caller], at[callee]):
                mixes[f"{at[caller]} {caller} to {at[callee]} {callee}"] += count


SPLIT_MIXES = (
    *(f"{a} gateway to {b} dispatcher" for a, b in (("old", "new"), ("new", "old"))),
    *(f"{a} dispatcher to {b} pool" for a, b in (("old", "new"), ("new", "old"))),
    *(f"{a} dispatcher relays to {b} dispatcher" for a, b in (("old", "new"), ("new", "old"))),
    *(f"{a} client at {b} gateway" for a in ("old", "new") for b in ("old", "new")),
    *(f"{a} node at {b} dispatcher" for a in ("old", "new") for b in ("old", "new")),
)
"""What must have happened, each with a job at least: otherwise a run has shown nothing."""


def _kept(history: History, logs: dict[str, str]) -> Path:
    """Keeps all for somebody who looks for the cause; returns the folder."""
    folder = Path(tempfile.mkdtemp(prefix="lingua-upgrade-"))
    history.write(folder / "history.json")
    for name, text in logs.items():
        (folder / f"{name}.log").write_text(text)
    return folder
