"""What `peers.py` makes of its rounds: medians, spreads, ratios, and a table. Pure."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from path import percentiles


@dataclass(frozen=True)
class Answer:
    """The result of one command to a client; CPU is by process or group of processes."""

    jobs_per_s: float
    cpu_ms: dict[str, float]
    took_ms: list[float]

    @property
    def cpu_ms_per_job(self) -> float:
        """CPU per job of all processes."""
        return sum(self.cpu_ms.values())


@dataclass(frozen=True)
class Round:
    """All measurements of one system in one round.

    `full` is at saturation, `half` at half of that rate, `slow` at `slow_rate`: 200 jobs/s, or less
    if the system is slower.
    """

    full: Answer
    half: Answer
    slow: Answer
    slow_rate: float


def entry(rounds: list[Round]) -> dict[str, Any]:
    """One system over all rounds.

    Every number is the median over the rounds of that round's value. For p50 and p99 that is the
    round's percentile, so one disturbed round does not decide a tail; `spread` shows it.
    """
    half = [percentiles(each.half.took_ms) for each in rounds]
    slow = [percentiles(each.slow.took_ms) for each in rounds]
    by_round = {
        "jobs_per_s": [each.full.jobs_per_s for each in rounds],
        "cpu_ms_per_job": [each.full.cpu_ms_per_job for each in rounds],
        "p50_ms": [each["p50_ms"] for each in half],
        "p99_ms": [each["p99_ms"] for each in half],
        "cpu_ms_per_job_at_200_jobs_per_s": [each.slow.cpu_ms_per_job for each in rounds],
        "p50_ms_at_200_jobs_per_s": [each["p50_ms"] for each in slow],
        "p99_ms_at_200_jobs_per_s": [each["p99_ms"] for each in slow],
    }
    middle = {name: round(median(values), 3) for name, values in by_round.items()}
    return {
        "jobs_per_s": round(middle["jobs_per_s"], 1),
        "cpu_ms_per_job": middle["cpu_ms_per_job"],
        "cpu_ms_per_job_by_process": _by_process([each.full for each in rounds]),
        "p50_ms": middle["p50_ms"],
        "p99_ms": middle["p99_ms"],
        "at_200_jobs_per_s": {
            "jobs_per_s": round(median(each.slow_rate for each in rounds), 1),
            "cpu_ms_per_job": middle["cpu_ms_per_job_at_200_jobs_per_s"],
            "cpu_ms_per_job_by_process": _by_process([each.slow for each in rounds]),
            "p50_ms": middle["p50_ms_at_200_jobs_per_s"],
            "p99_ms": middle["p99_ms_at_200_jobs_per_s"],
        },
        "rounds": len(rounds),
        "spread": {
            name: [round(min(values), 3), round(max(values), 3)]
            for name, values in by_round.items()
        },
    }


def _by_process(answers: list[Answer]) -> dict[str, float]:
    return {
        name: round(median(answer.cpu_ms[name] for answer in answers), 3)
        for name in answers[0].cpu_ms
    }


def add_ratios(entries: dict[str, dict[str, Any]], peers: list[str]) -> dict[str, str]:
    """Add the ratios to the best of `peers` to every entry; returns the names of the best.

    There is nothing to add if `peers` is empty.
    """
    if not peers:
        return {}
    best = {
        "jobs_per_s": max(peers, key=lambda name: float(entries[name]["jobs_per_s"])),
        "p99_ms": min(peers, key=lambda name: float(entries[name]["p99_ms"])),
        "p99_ms_at_200_jobs_per_s": min(
            peers, key=lambda name: float(entries[name]["at_200_jobs_per_s"]["p99_ms"])
        ),
    }
    rate = entries[best["jobs_per_s"]]["jobs_per_s"]
    p99 = entries[best["p99_ms"]]["p99_ms"]
    slow_p99 = entries[best["p99_ms_at_200_jobs_per_s"]]["at_200_jobs_per_s"]["p99_ms"]
    for each in entries.values():
        each["throughput_ratio"] = round(each["jobs_per_s"] / rate, 3)
        each["p99_ratio"] = round(each["p99_ms"] / p99, 3)
        slow = each["at_200_jobs_per_s"]
        slow["p99_ratio"] = round(slow["p99_ms"] / slow_p99, 3)
    return best


def table(result: dict[str, dict[str, Any]]) -> str:
    """The table for terminals, 100 columns wide, and a line for each system that was skipped."""
    lines = [
        f"{'':14}{'at saturation':^30}{'at half of it':^20}{'at 200 jobs/s':^36}",
        f"{'':14}{'jobs/s':>6}{'(rounds)':>12}{'ratio':>6}{'CPU':>6}"
        f"{'p50':>7}{'p99':>7}{'ratio':>6}"
        f"{'CPU':>6}{'p50':>6}{'p99':>7}{'(rounds)':>11}{'ratio':>6}",
    ]
    for name, row in result.items():
        if "skipped" in row:
            continue
        slow, spread = row["at_200_jobs_per_s"], row["spread"]
        lines.append(
            f"{name:14}{row['jobs_per_s']:6.0f}{_span(spread['jobs_per_s']):>12}"
            f"{_ratio(row, 'throughput_ratio')}{row['cpu_ms_per_job']:6.2f}"
            f"{_ms(row['p50_ms']):>7}{_ms(row['p99_ms']):>7}{_ratio(row, 'p99_ratio')}"
            f"{slow['cpu_ms_per_job']:6.2f}{_ms(slow['p50_ms']):>6}{_ms(slow['p99_ms']):>7}"
            f"{_span(spread['p99_ms_at_200_jobs_per_s']):>11}{_ratio(slow, 'p99_ratio')}"
        )
    lines.append("CPU, p50 and p99 in ms; ratios to the best Python peer.")
    skipped = {name: row["skipped"] for name, row in result.items() if "skipped" in row}
    lines += (f"{name} was skipped: {why.splitlines()[0]}" for name, why in skipped.items())
    return "\n".join(line.rstrip() for line in lines)


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _span(values: list[float]) -> str:
    low, high = values
    return f"{low:.0f}-{high:.0f}"


def _ratio(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:6.2f}" if name in row else f"{'-':>6}"
