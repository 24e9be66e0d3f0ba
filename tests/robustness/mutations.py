"""Breaks a rule on purpose, in a copy of the sources, and shows that a suite finds out.

    python -m tests.robustness.mutations [--only WORDS]

The working tree is never touched. Each mutation names what should catch it: a round of the
robustness suite, or a file of the other tests. First the same commands run on a copy in which
nothing is broken, and must pass: else their failure would prove nothing.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", ".*_cache", "node_modules", "dist", "build", "peers_of"
)
LIMIT_S = 400


@dataclass(frozen=True)
class Mutation:
    """One broken rule.

    Attributes:
        rule: what does not hold any more.
        file: where.
        old, new: the text that is replaced, which must be there exactly once.
        caught_by: faults of one robustness round ("round: ..."), or arguments of pytest.
    """

    rule: str
    file: str
    old: str
    new: str
    caught_by: str


_MACHINE = " ".join(
    f"tests/unit/dispatcher/test_job_machine{part}.py" for part in ("", "_table", "_properties")
)

_AUDIENCE = "tests/unit/gateway/test_audience_properties.py"

MUTATIONS = (
    Mutation(
        "reservations hold a slot",
        "lua/lib/slots.lua",
        "node.used = redis.call('ZCARD', reserved) + redis.call('ZCARD', running)",
        "node.used = redis.call('ZCARD', running)",
        "tests/lua/test_leases.py",
    ),
    Mutation(
        "a late acknowledgement needs room",
        "lua/commit.lua",
        "elseif node.used < node.max then",
        "elseif true then",
        "tests/lua/test_leases.py",
    ),
    Mutation(
        "a running lease is not given back by release",
        "lua/release.lua",
        "  return { 'running' }\n",
        "  redis.call('ZREM', running_key(P, node_id), member)\n",
        "tests/lua/test_leases.py",
    ),
    Mutation(
        "what a node runs keeps its lease",
        "lua/lib/renew.lua",
        "redis.call('ZADD', running, now + lease_ms, member)",
        "redis.call('ZSCORE', running, member)",
        "tests/lua/test_registration.py",
    ),
    Mutation(
        "an old gateway creates no job (session epoch)",
        "lua/allocate.lua",
        "if epoch and epoch > session_epoch then",
        "if epoch and epoch > session_epoch and false then",
        "tests/lua/test_sessions.py tests/lua/test_affinity.py"
        " tests/integration/pool/test_service.py",
    ),
    Mutation(
        "an old gateway records no cut (fencing)",
        "lua/lib/session.lua",
        "if tonumber(current) > tonumber(epoch) or not known[2] then",
        "if not known[2] then",
        "tests/lua/test_sessions.py",
    ),
    Mutation(
        "a turn goes to its node (affinity)",
        "lua/allocate.lua",
        "  found = choose_bound(P, want, now, bound, bound_path, may_wait)\n",
        "  found = nothing_found(nil)\n",
        "round: node answers twice",
    ),
    Mutation(
        "a result of an attempt that was given up is dropped",
        "services/dispatcher/job/model.py",
        "return attempt if attempt is not None and attempt.is_alive else None",
        "return attempt",
        _MACHINE,
    ),
    Mutation(
        "one node alone cannot call a job hopeless",
        "services/dispatcher/job/model.py",
        "HOPELESS_SAYINGS = 2",
        "HOPELESS_SAYINGS = 1",
        _MACHINE,
    ),
    Mutation(
        "one node alone cannot use up all tries of a job",
        "services/dispatcher/job/machine.py",
        "if now < transitions.others_until(job):",
        "if False:",
        f"{_MACHINE} tests/unit/dispatcher/test_job_waiting.py",
    ),
    Mutation(
        "an acknowledgement counts for its own attempt only",
        "services/dispatcher/job/machine.py",
        "        attempt = job.attempts.get(number)\n"
        "        if attempt is not None and attempt.is_alive:",
        "        attempt = job.attempts.get(max(job.attempts, default=0))\n"
        "        if attempt is not None and attempt.is_alive:",
        _MACHINE,
    ),
    Mutation(
        "audio is acknowledged only when it is safe",
        "services/session_gateway/session/intake.py",
        "if gathered is not None and gathered < safe:",
        "if gathered is not None and gathered < safe and False:",
        "round: kill -9 of a gateway",
    ),
    Mutation(
        "what a node holds is kept until a result has it",
        "services/session_gateway/session/turns.py",
        "return audio if audio and self._budget.take(len(audio)) else None",
        "return None",
        "tests/unit/gateway/test_session_held_audio.py",
    ),
    Mutation(
        "an index is used for one cut (a later gateway knows what was cut)",
        "services/session_gateway/store/session_store.py",
        "cuts=tuple(session_record_pb2.Cut.FromString(cut) for cut in reply[10::2]),",
        "cuts=(),",
        "round: kill -9 of a gateway",
    ),
    Mutation(
        "results that were seen are not sent again (results_seen)",
        "services/session_gateway/live/sessions.py",
        "            seen=seen,\n            next_seq=next_seq,",
        "            seen=0,\n            next_seq=next_seq,",
        "tests/integration/gateway/test_resume.py",
    ),
    Mutation(
        "a client has seen no more than there was (hostile peers stop nobody)",
        "services/session_gateway/validate.py",
        "if not seen <= resume.results_seen <= created:",
        "if False:",
        "round: hostile peers",
    ),
    Mutation(
        "a result is given to the app once",
        "services/session_gateway/session/delivery.py",
        "        if not self.deadlines.remove(index):\n            return False\n",
        "        self.deadlines.remove(index)\n",
        "tests/unit/gateway/test_result_queue.py",
    ),
    Mutation(
        "rooms: an outcome waits for those before it",
        "lua/put_spoken.lua",
        "if not first or first > index then",
        "if true then",
        "tests/lua/test_room_model.py",
    ),
    Mutation(
        "rooms: a cut gets one room index, however often it is recorded",
        "lua/record_spoken.lua",
        "local said, is_new = session_said(key, known, cuts.index), false",
        "local said, is_new = {}, false",
        "tests/lua/test_room_model.py",
    ),
    Mutation(
        "rooms: an utterance whose speaker is gone is missing when it is due",
        "lua/lib/room_lanes.lua",
        "if not index or due > now then",
        "if true then",
        "tests/lua/test_room_model.py",
    ),
    Mutation(
        "rooms: members of a gateway that is gone do not stay",
        "lua/lib/room_members.lua",
        "    if gateway ~= alive then",
        "    if false then",
        "tests/lua/test_room_model.py",
    ),
    Mutation(
        "rooms: nothing is delivered below a listener's position",
        "services/session_gateway/rooms/lane.py",
        "        if index < at:\n            continue\n",
        "",
        _AUDIENCE,
    ),
    Mutation(
        "rooms: outcomes that are no longer kept are named",
        "services/session_gateway/rooms/lane.py",
        "        if lost_until > at:",
        "        if False:",
        _AUDIENCE,
    ),
    Mutation(
        "rooms: what was said before a change comes in the old language",
        "services/session_gateway/rooms/lane.py",
        "        return cursor > leg.last_open and self.reads_complete > leg.seen_reads",
        "        return True",
        _AUDIENCE,
    ),
    Mutation(
        "rooms: a token of another room opens nothing",
        "services/runtime/auth/room_tokens.py",
        "return hmac.compare_digest(_mac(body, secret).encode(), mac.encode())",
        "return hmac.compare_digest(b'', b'') and bool(_mac(body, secret)) and bool(mac)",
        "tests/unit/runtime/test_room_tokens.py",
    ),
)


def run(tree: Path, command: str) -> tuple[bool, str]:
    """Whether a suite is content with a tree; and the last of what it said."""
    if command.startswith("round: "):
        faults = command.removeprefix("round: ")
        words = ["-m", "tests.robustness", "--store", "aof", "--seed", "7", "--rounds", "3"]
        words += ["--faults", faults, "--minutes", "3", "--out", str(tree / "out")]
    else:
        words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *command.split()]
    environ = {**os.environ, "PYTHONPATH": str(tree / "src")}
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=tree,
            env=environ,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return False, f"did not end within {LIMIT_S} s"
    lines = (done.stdout + done.stderr).strip().splitlines()
    telling = [line.strip() for line in lines if "VIOLATION" in line or line.startswith("FAILED")]
    return done.returncode == 0, (telling or lines or [""])[0][:160]


def copied(into: Path) -> Path:
    """A copy of the sources."""
    tree = into / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
    return tree


def spoil(tree: Path, mutation: Mutation) -> None:
    """Breaks the rule in a copy."""
    path = tree / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        sys.exit(f"{mutation.file} has changed: the mutation of '{mutation.rule}' does not fit")
    path.write_text(text.replace(mutation.old, mutation.new))


def main() -> None:
    """Tries all mutations; ends with 1 where one is not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutations whose rule has these words")
    chosen = [each for each in MUTATIONS if parser.parse_args().only in each.rule]
    with tempfile.TemporaryDirectory(prefix="lingua-mutations-") as folder:
        tree = copied(Path(folder))
        for command in dict.fromkeys(each.caught_by for each in chosen):
            good, said = run(tree, command)
            print(
                f"nothing broken: {command}: {'passes' if good else 'FAILS: ' + said}", flush=True
            )
            if not good:
                sys.exit(1)
    survived = 0
    print("\n| rule that is broken | file | caught by | how it shows | s |\n|---|---|---|---|---|")
    for each in chosen:
        with tempfile.TemporaryDirectory(prefix="lingua-mutations-") as folder:
            tree = copied(Path(folder))
            spoil(tree, each)
            started = time.monotonic()
            good, said = run(tree, each.caught_by)
            survived += good
            shown = "NOT CAUGHT" if good else said.replace("|", "/")
            took = time.monotonic() - started
            row = (each.rule, f"`{each.file}`", each.caught_by, shown, f"{took:.0f}")
            print("| " + " | ".join(row) + " |", flush=True)
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
