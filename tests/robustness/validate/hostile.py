"""Hostile peers cost nobody else anything: no process is silent, grows without bound, or ends.

A process counts as silent for a second only if that is its own doing, so that a busy machine breaks
no promise: it answered no health check for over a second longer than an idle process at the same
time, and used over a second of CPU time meanwhile. One that waits for something else than a CPU is
caught by a longer bound.
"""

from collections.abc import Iterator

from tests.robustness.history import HOSTILE_PEERS, History, HostileHistory, Silence
from tests.robustness.validate.violation import Violation

SILENT_S = 1.0
"""How long a process may be silent, of its own CPU time and beyond the control's silence."""
WAITING_S = 5.0
"""How long it may be silent beyond the control's silence if it does not use the CPU."""
MORE_MB = 160.0
"""How much more memory a process may have than before the hostile peers began."""
# A node that a fault has hit, or what leads to it, may be out for so long after the fault is over:
# it connects anew, and an ejection takes eject_max_ms.
BACK_WITHIN_S = 8.0


def hostile_peers_were_at_work(history: History) -> Iterator[Violation]:
    """Otherwise the rest proves nothing."""
    rule = "hostile peers are at work"
    if history.hostile is None:
        return
    for who in HOSTILE_PEERS:
        if not history.hostile.cycles.get(who):
            done = [name for name in history.hostile.acts if name.startswith(who)]
            yield Violation(rule, who, f"it has done only {len(done)} kinds of acts")
    for told in history.hostile.broke:
        yield Violation(rule, told.split(":")[0], told)


def no_process_is_silent(history: History) -> Iterator[Violation]:
    """Each service answers a health check all the while, unless a fault has hit that very one."""
    for each in _of(history).silences:
        if not _is_own_doing(history, each):
            continue
        what = (
            f"no answer for {each.until - each.since:.1f} s, {each.cpu_s:.1f} s of it at work;"
            f" an idle process for {each.control_s:.1f} s"
        )
        yield Violation("no process is silent", each.process, what)


def memory_is_bounded(history: History) -> Iterator[Violation]:
    """No process, and not Redis, grows by more than it may."""
    for name, (before, most) in _of(history).memory_mb.items():
        if most > before + MORE_MB:
            what = f"grew from {before:.0f} to {most:.0f} MB; {MORE_MB:.0f} MB more are allowed"
            yield Violation("memory is bounded", name, what)


def honest_nodes_stay_in(history: History) -> Iterator[Violation]:
    """No honest node is ejected or offline, but for the time of other faults, and just after."""
    seen = set()
    for t, node, why in _of(history).out:
        if (node, why) not in seen and not _is_faulty(history, t):
            seen.add((node, why))
            yield Violation("honest nodes stay in", node, f"{why} at {t:.1f}")


def nobody_dies_of_it(history: History) -> Iterator[Violation]:
    """No process ends that no fault has hit."""
    seen = set()
    for t, name in _of(history).ended:
        hit = any(each.hit(name) and each.injected <= t for each in history.struck)
        if name not in seen and not hit:
            seen.add(name)
            yield Violation("no process ends", name, f"it had ended at {t:.1f}")


def longest_silence(history: History) -> Silence | None:
    """The longest one of a process that no fault had hit; None: there is none worth a word."""
    quiet = [each for each in _of(history).silences if _own_s(history, each) > 0]
    return max(quiet, key=lambda each: _own_s(history, each), default=None)


def summary(history: History) -> str:
    """What hostile peers did, and what it cost, in a line."""
    hostile = _of(history)
    worst = longest_silence(history)
    silence = "none"
    if worst:
        silence = f"{_own_s(history, worst):.2f} s ({worst.process}, {worst.cpu_s:.2f} s at work)"
    grown = {name: most - before for name, (before, most) in hostile.memory_mb.items()}
    most = max(grown, key=lambda name: grown[name], default="")
    memory = f"{grown[most]:.0f} MB ({most})" if most else "unknown"
    count = sum(hostile.acts.values())
    return (
        f"hostile: {count} acts of {len(hostile.acts)} kinds; longest silence {silence};"
        f" most memory +{memory}"
    )


def _of(history: History) -> HostileHistory:
    return history.hostile or HostileHistory()


def _is_own_doing(history: History, silence: Silence) -> bool:
    own = _own_s(history, silence)
    return own > WAITING_S or (own > SILENT_S and silence.cpu_s > SILENT_S)


def _own_s(history: History, silence: Silence) -> float:
    """How long a silence is without what faults and the machine are to blame for."""
    since = silence.since
    for each in history.struck:
        if each.hit(silence.process) and each.injected <= silence.until:
            since = max(since, each.healed)
    return silence.until - since - silence.control_s


def _is_faulty(history: History, t: float) -> bool:
    """Whether something else than hostile peers may be the reason at that time."""
    return any(
        each.injected <= t <= each.healed + BACK_WITHIN_S
        for each in history.struck
        if each.fault != "hostile peers"
    )
