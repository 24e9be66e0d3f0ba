"""`lingua jobs`: requests to the dispatcher, and the output for its answers."""

import base64
import json
import socket
import time
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.views.job_waterfall import Scale
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.unit.cli.test_clients import Answer, run

T0 = 1_700_000_000_000
STEP = common_pb2.JobStep
ZH_EN = common_pb2.LanguagePair(src="zh", tgt="en")


def attempt(
    number: int = 1, node: str = "n1", *, at: int = 0, ack: int = 10, end: int = 1000, **fields: Any
) -> dispatcher_pb2.AttemptRecord:
    """An attempt with times relative to T0; a negative time means that it did not happen."""
    values: dict[str, Any] = {
        "reserved_ms": T0 + at,
        "acked_ms": T0 + ack if ack >= 0 else 0,
        "ended_ms": T0 + end if end >= 0 else 0,
        "outcome": "done" if end >= 0 else "",
    }
    return dispatcher_pb2.AttemptRecord(attempt=number, node_id=node, **{**values, **fields})


def job(job_id: str = "j1", **fields: Any) -> dispatcher_pb2.Job:
    values: dict[str, Any] = {
        "state": common_pb2.JOB_STATE_DONE,
        "session_id": "s1",
        "utterance_index": 4,
        "pair": ZH_EN,
        "created_ms": T0,
        "updated_ms": T0 + 1000,
        "attempts": [attempt()],
    }
    return dispatcher_pb2.Job(job_id=job_id, **{**values, **fields})


def listed(*jobs: dispatcher_pb2.Job, token: str = "") -> Answer:
    response = dispatcher_pb2.ListJobsResponse(jobs=jobs, next_page_token=token)
    return Answer("ListJobs", response)


def shown(found: dispatcher_pb2.Job, result: dispatcher_pb2.JobResult | None = None) -> Answer:
    return Answer("GetJob", dispatcher_pb2.GetJobResponse(job=found, result=result))


def cancelled(state: common_pb2.JobState.ValueType) -> Answer:
    return Answer("CancelJob", dispatcher_pb2.CancelJobResponse(state=state))


def step(
    kind: common_pb2.JobStep.Kind.ValueType, at: float, took: float, number: int = 0, how: str = ""
) -> common_pb2.JobStep:
    """A step with times in ms from T0."""
    return common_pb2.JobStep(
        kind=kind,
        attempt=number,
        started_us=T0 * 1000 + round(at * 1000),
        took_us=round(took * 1000),
        node_id=f"n{number}" if number else "",
        detail=how,
    )


def waterfall(
    found: dispatcher_pb2.Job, result: dispatcher_pb2.JobResult | None = None
) -> tuple[list[tuple[str, str, list[str]]], str]:
    """Label, bar of 24 characters and the rest of each step; and the last line."""
    told, _ = run("jobs show j1", shown(found, result), env={"COLUMNS": "80"})
    assert told.exit_code == 0
    assert "\x1b" not in told.stdout
    lines = told.stdout.split("STEP", 1)[1].split("\n\n")[0].splitlines()[1:]
    cells = [line.split("|") for line in lines]
    return [(a.rstrip(), bar, rest.split()) for a, bar, rest in cells], told.stdout.splitlines()[-1]


def test_list_shows_each_job_on_an_aligned_line() -> None:
    now = int(time.time() * 1000)
    tries = [attempt(1, "n1", outcome="failed"), attempt(2, "n2", end=-1)]
    acked = common_pb2.JOB_STATE_ACKED
    running = job("j2", state=acked, created_ms=now - 5500, attempts=tries)
    result, _ = run("jobs list", listed(job(created_ms=T0 - 200), running))
    head, *lines = (line.split() for line in result.stdout.splitlines())
    assert " ".join(head) == "JOB STATE PAIR SESSION UTTERANCE ATTEMPTS NODE AGE TOOK"
    assert lines[0] == ["j2", "acked", "zh:en", "s1", "4", "2", "n2", "5s", "-"]
    assert lines[1][:7] == ["j1", "done", "zh:en", "s1", "4", "1", "n1"]
    assert lines[1][8] == "1.20s"
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_list_asks_for_what_was_named() -> None:
    result, requests = run("jobs list --session s1 --node n1 --state Done --limit 7", listed())
    assert requests[0] == dispatcher_pb2.ListJobsRequest(
        session_id="s1", node_id="n1", state=common_pb2.JOB_STATE_DONE, page_size=7
    )
    assert result.stdout == "no jobs match\n"


def test_list_asks_for_a_direction_a_reason_and_a_time() -> None:
    before_ms = time.time() * 1000
    result, requests = run("jobs list --pair zh:en --error job_timeout --since 10m", listed())
    (request,) = requests
    assert (request.pair, request.error) == (ZH_EN, common_pb2.ERROR_REASON_JOB_TIMEOUT)
    assert 0 <= request.changed_from_ms - (before_ms - 600_000) + 1 < 60_000
    assert result.stdout == "no jobs match\n"


def test_list_without_filters_sends_none() -> None:
    result, requests = run("jobs list", listed())
    assert requests[0] == dispatcher_pb2.ListJobsRequest(page_size=100)
    assert result.stdout == "there are no recent jobs\n"


def test_list_reads_pages_to_the_end_and_shows_each_job_once_and_the_newest_first() -> None:
    pages = (
        listed(job("old", created_ms=T0), token="17"),
        listed(token="18"),
        listed(job("new", created_ms=T0 + 5), job("old", created_ms=T0)),
    )
    result, requests = run("jobs list --json", *pages)
    assert [request.page_token for request in requests] == ["", "17", "18"]
    told = json.loads(result.stdout)
    assert [each["job_id"] for each in told["jobs"]] == ["new", "old"]
    assert told["more"] is False


def test_list_reads_no_page_beyond_the_limit_and_says_that_there_may_be_more() -> None:
    full = listed(job("a"), job("b"), token="17")
    result, requests = run("jobs list --limit 2", full)
    assert len(requests) == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["JOB", "a", "b"]
    assert "--limit" in result.stderr


def test_list_cuts_a_page_that_has_more_than_was_asked_for() -> None:
    result, _ = run("jobs list --limit 1 --json", listed(job("a"), job("b", created_ms=T0 + 1)))
    told = json.loads(result.stdout)
    assert [each["job_id"] for each in told["jobs"]] == ["b"]
    assert told["more"] is True


def test_jobs_that_just_fill_the_limit_are_all_there_are() -> None:
    result, _ = run("jobs list --limit 1", listed(job("a")))
    assert result.stderr == ""


def test_a_late_attempt_does_not_make_a_job_look_slower() -> None:
    tries = [attempt(1, end=5000, outcome="timed_out"), attempt(2, end=1500)]
    result, _ = run("jobs list", listed(job(updated_ms=T0 + 5000, attempts=tries)))
    assert result.stdout.split()[-1] == "1.50s"


@pytest.mark.parametrize(
    "args",
    ["--state well", "--limit 0", "--pair zh", "--error WORN_OUT", "--since 5", "--since soon"],
)
def test_filters_that_cannot_be_are_wrong_usage(args: str) -> None:
    result, _ = run(f"jobs list {args}")
    assert result.exit_code == 2


def test_show_has_every_fact_with_the_error_and_what_it_knows() -> None:
    error = common_pb2.Error(
        reason=common_pb2.ERROR_REASON_JOB_FAILED,
        message="every attempt\nfailed",
        metadata={"attempts": "3"},
    )
    failed = job(
        state=common_pb2.JOB_STATE_FAILED,
        tenant="t1",
        job_key="t1:s1:4:translate:en:ab",
        home_instance="d1",
        reason=common_pb2.FINALIZE_REASON_MAX_DURATION,
        error=error,
    )
    result, requests = run("jobs show j1", shown(failed))
    assert requests[0] == dispatcher_pb2.GetJobRequest(job_id="j1", with_result=True)
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line]
    for fact in (
        ["job", "j1"],
        ["state", "failed"],
        ["pair", "zh:en"],
        ["utterance", "4"],
        ["cut", "by      max_duration"],
        ["tenant", "t1"],
        ["key", "t1:s1:4:translate:en:ab"],
        ["home", "d1"],
        ["took", "1.00s"],
        ["error", "JOB_FAILED: every attempt failed"],
        ["attempts", "3"],
        ["result", "none is kept"],
    ):
        assert fact in lines
    assert "2023-11-14 22:13:20.000 UTC" in result.stdout


def test_show_has_the_result_while_it_is_kept() -> None:
    result = dispatcher_pb2.JobResult(
        kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
        texts=dispatcher_pb2.Texts(source="你好", translated="hello"),
        speech=b"\0" * 320,
        joined_utterances=[2, 3],
    )
    told, _ = run("jobs show j1", shown(job(), result))
    lines = [line.split(maxsplit=1) for line in told.stdout.splitlines() if line]
    for fact in (
        ["result", "translated"],
        ["recognised", "你好"],
        ["translated", "hello"],
        ["speech", "320 bytes"],
        ["joined", "utterances 2 3"],
    ):
        assert fact in lines
    assert "repaired" not in told.stdout


def test_show_draws_every_step_below_its_attempt_from_the_cut_on() -> None:
    steps = [
        step(STEP.KIND_GATHER, -3000, 3000),
        step(STEP.KIND_HANGOVER, 0, 200),
        step(STEP.KIND_SUBMIT, 200, 1.25),
        step(STEP.KIND_ALLOCATE, 202, 2, 1),
        step(STEP.KIND_SEND, 204, 0, 1, "by relay"),
        step(STEP.KIND_ACK, 204, 996, 1, "ACK_TIMEOUT"),
        step(STEP.KIND_ALLOCATE, 1200, 1, 2),
        step(STEP.KIND_SEND, 1201, 1, 2),
        step(STEP.KIND_ACK, 1202, 198, 2),
        step(STEP.KIND_NODE, 1400, 800, 2),
        step(STEP.KIND_STAGE, 1400, 400, 2, "asr"),
        step(STEP.KIND_DELIVER, 2200, 200),
    ]
    tries = [attempt(1, "n1", outcome="released", detail="ack_timeout"), attempt(2, "n2")]
    rows, last = waterfall(job(steps=steps, attempts=tries))
    assert rows == [
        ("gather", "~~~" + " " * 24, ["-3000.0", "3000.0"]),
        ("hangover", "   " + "..".ljust(24), ["+0.0", "200.0"]),
        ("submit", "   " + "  =".ljust(24), ["+200.0", "1.2"]),
        ("attempt 1", " " * 27, ["+202.0", "998.0", "n1", "released:", "ack_timeout"]),
        ("  allocate", "   " + "  =".ljust(24), ["+202.0", "2.0"]),
        ("  send", "   " + "  =".ljust(24), ["+204.0", "0.0", "by", "relay"]),
        ("  ack", "   " + "  ..........".ljust(24), ["+204.0", "996.0", "ACK_TIMEOUT"]),
        ("attempt 2", " " * 27, ["+1200.0", "1000.0", "n2", "done"]),
        ("  allocate", "   " + " " * 12 + "=".ljust(12), ["+1200.0", "1.0"]),
        ("  send", "   " + " " * 12 + "=".ljust(12), ["+1201.0", "1.0"]),
        ("  ack", "   " + " " * 12 + "..".ljust(12), ["+1202.0", "198.0"]),
        ("  node", "   " + " " * 14 + "========".ljust(10), ["+1400.0", "800.0"]),
        ("    asr", "   " + " " * 14 + "----".ljust(10), ["+1400.0", "400.0"]),
        ("deliver", "   " + " " * 22 + "..", ["+2200.0", "200.0"]),
    ]
    assert last == (
        "5400.0 ms in all, 2400.0 ms after the cut; most of it: ack of attempt 1, 996.0 ms (42 %)"
    )


def test_a_job_that_is_under_way_says_what_goes_on() -> None:
    steps = [
        step(STEP.KIND_ALLOCATE, 0, 10, 1),
        step(STEP.KIND_SEND, 10, 0, 1),
        step(STEP.KIND_ACK, 10, 10, 1),
        step(STEP.KIND_NODE, 20, 80, 1, "under way"),
    ]
    acked = common_pb2.JOB_STATE_ACKED
    rows, last = waterfall(job(state=acked, steps=steps, attempts=[attempt(end=-1)]))
    assert rows[0][2][-1] == "running"
    label, bar, rest = rows[-1]
    assert (label, bar[-2:], rest[-2:]) == ("  node", "=>", ["under", "way"])
    assert last.startswith("100.0 ms so far; most of it: node of attempt 1, 80.0 ms")


def test_a_job_that_never_had_a_node_shows_where_it_waited() -> None:
    full = "ALL_CANDIDATES_FULL_OR_FAILED"
    steps = [step(STEP.KIND_ALLOCATE, 0, 2, 1, full), step(STEP.KIND_QUEUE, 2, 1998, 1, full)]
    rows, last = waterfall(job(state=common_pb2.JOB_STATE_FAILED, steps=steps, attempts=[]))
    assert [(label, rest[-1]) for label, _, rest in rows[1:]] == [
        ("  allocate", full),
        ("  queue", full),
    ]
    assert "most of it: queue" in last


def test_without_steps_on_record_the_times_of_attempts_are_drawn() -> None:
    tries = [
        attempt(1, "n1", at=0, ack=-1, end=500, outcome="released"),
        attempt(2, "n2", at=500, ack=600, end=1000, outcome="failed", detail="OOM: no\nmemory"),
    ]
    timings = [dispatcher_pb2.StageTiming(stage=common_pb2.STAGE_KIND_ASR, took_ms=200)]
    result = dispatcher_pb2.JobResult(
        attempt=common_pb2.AttemptRef(job_id="j1", attempt=2), timings=timings
    )
    rows, _ = waterfall(job(attempts=tries), result)
    assert [(label, rest[:2]) for label, _, rest in rows] == [
        ("attempt 1", ["+0.0", "500.0"]),
        ("  ack", ["+0.0", "500.0"]),
        ("attempt 2", ["+500.0", "500.0"]),
        ("  ack", ["+500.0", "100.0"]),
        ("  node", ["+600.0", "400.0"]),
        ("    asr", ["+600.0", "200.0"]),
    ]
    assert rows[2][2][-4:] == ["failed:", "OOM:", "no", "memory"]


def test_an_attempt_that_goes_on_reaches_until_now_where_only_its_times_are_known() -> None:
    now = int(time.time() * 1000)
    going = attempt(end=-1, reserved_ms=now - 4000, acked_ms=now - 2000)
    running = job(state=common_pb2.JOB_STATE_ACKED, created_ms=now - 4000, attempts=[going])
    rows, last = waterfall(running)
    assert rows[-1][1].endswith("====>")
    assert rows[0][2][-1] == "running"
    assert "so far" in last


def test_an_attempt_without_an_end_of_a_job_that_is_over_is_not_said_to_run() -> None:
    tries = [attempt(1, end=-1), attempt(2, at=500, ack=510)]
    rows, _ = waterfall(job(attempts=tries))
    heads = {label: rest for label, _, rest in rows if label.startswith("attempt")}
    assert heads["attempt 1"][-1] == "unknown"
    assert heads["attempt 2"][-1] == "done"
    assert not any(">" in bar for _, bar, _ in rows)


def test_a_job_of_which_nothing_is_known_yet_says_so() -> None:
    result, _ = run("jobs show j1", shown(job(state=common_pb2.JOB_STATE_SELECTING, attempts=[])))
    assert result.stdout.endswith("no steps are known yet\n")


@pytest.mark.parametrize(
    ("start", "end", "bar"),
    [
        (0, 100, "=========="),
        (0, 0, "=         "),
        (100, 100, "         ="),
        (90, 500, "         ="),
        (-50, 10, "=         "),
        (-50, -10, "          "),
    ],
)
def test_a_step_has_a_character_at_least_and_stays_within_the_bar(
    start: int, end: int, bar: str
) -> None:
    assert Scale(0, 100, 10).bar("=", start, end) == bar


def test_a_scale_without_length_still_draws() -> None:
    assert Scale(5, 5, 4).bar("=", 5, 5) == "=   "


def test_show_as_json_is_the_response_with_maps_and_bytes() -> None:
    error = common_pb2.Error(metadata={"drawn": "2"})
    result = dispatcher_pb2.JobResult(speech=b"\x00\xff")
    told, _ = run("jobs show j1 --json", shown(job(error=error), result))
    document = json.loads(told.stdout)
    assert document["job"]["state"] == "DONE"
    assert document["job"]["error"]["metadata"] == {"drawn": "2"}
    assert document["job"]["attempts"][0]["reserved_ms"] == T0
    assert base64.b64decode(document["result"]["speech"]) == b"\x00\xff"


def test_cancel_passes_on_why_and_says_the_state_after() -> None:
    args = ["jobs", "cancel", "j1", "--why", "wrong speaker"]
    result, requests = run(args, cancelled(common_pb2.JOB_STATE_CANCELLED))
    assert requests == [dispatcher_pb2.CancelJobRequest(job_id="j1", why="wrong speaker")]
    assert result.stdout == "j1 is cancelled\n"
    assert result.exit_code == 0


def test_cancelling_what_is_over_changes_nothing_and_is_no_failure() -> None:
    result, _ = run("jobs cancel j1", cancelled(common_pb2.JOB_STATE_DONE))
    assert result.stdout == "j1 had already ended: it is done\n"
    assert result.exit_code == 0


def test_cancel_as_json_is_the_response() -> None:
    result, _ = run("jobs cancel j1 --json", cancelled(common_pb2.JOB_STATE_CANCELLED))
    assert json.loads(result.stdout) == {"state": "CANCELLED"}


def test_a_job_that_goes_on_was_not_cancelled_and_the_command_fails() -> None:
    result, _ = run("jobs cancel j1", cancelled(common_pb2.JOB_STATE_ACKED))
    assert result.exit_code == 1
    assert "j1 was not cancelled and is acked" in result.stderr
    assert "--dispatcher" in result.stderr


@pytest.mark.parametrize(("command", "method"), [("show", "GetJob"), ("cancel", "CancelJob")])
def test_a_job_that_is_not_known_is_exit_code_4(command: str, method: str) -> None:
    error = errors.JobNotFoundError("there is no job 'j1', or it was forgotten")
    result, _ = run(f"jobs {command} j1", Answer(method, error=error))
    assert result.exit_code == 4
    assert result.stderr == (
        "Error: there is no job 'j1', or it was forgotten; 'lingua jobs list' shows those that "
        "exist\n"
    )


def test_a_dispatcher_that_is_not_there_is_exit_code_3_and_says_what_to_do() -> None:
    refused = "failed to connect to all addresses; last error: connect: Connection refused (111)"
    answer = Answer("ListJobs", code=grpc.StatusCode.UNAVAILABLE, details=refused)
    result, _ = run("jobs list", answer)
    assert result.exit_code == 3
    assert result.stderr == (
        "Error: cannot reach the dispatcher at dispatcher.test:7720: connection refused. Is it "
        "running? Start it with 'lingua up', or set LINGUA_DISPATCHER_ADDRESS or --dispatcher\n"
    )


def test_a_redis_that_is_down_is_exit_code_3() -> None:
    error = errors.DependencyDownError("Redis is down: connection refused")
    result, _ = run("jobs list", Answer("ListJobs", error=error))
    assert result.exit_code == 3
    assert "the dispatcher at dispatcher.test:7720 answers, but its Redis does not" in result.stderr


@pytest.mark.parametrize("before", [True, False])
def test_the_address_may_stand_before_or_after_the_command(before: bool) -> None:
    # A real channel: that of grpc_testing knows no deadlines.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        where = ["--timeout", "0.1", "--dispatcher", address]
        words = ["jobs", "list"]
        result = CliRunner().invoke(app, [*where, *words] if before else [*words, *where])
    assert result.exit_code == 3
    assert f"no answer from the dispatcher at {address} within 0.1 s" in result.stderr


def test_the_address_comes_from_the_settings_where_none_is_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        env = {"LINGUA_DISPATCHER_ADDRESS": address}
        result = CliRunner(env=env).invoke(app, ["jobs", "list", "--timeout", "0.1"])
    assert f"no answer from the dispatcher at {address}" in result.stderr


def test_an_address_that_cannot_be_one_is_wrong_usage() -> None:
    result, _ = run("--dispatcher nope jobs list")
    assert result.exit_code == 2
    assert "must be host:port" in result.stderr
