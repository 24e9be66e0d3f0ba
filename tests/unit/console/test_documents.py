"""Documents: their shape, checks of queries, and what happens while no service answers."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from lingua_scheduler.services.console.documents.documents import Documents
from lingua_scheduler.services.console.documents.explanations import EXPLANATIONS, explanation
from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.problems import Problems
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    InvalidMessageError,
    LinguaError,
)
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.v1 import common_pb2, instances_pb2, pool_pb2
from tests.unit.console.messages import (
    NOW,
    capabilities,
    capability_set,
    change,
    instance,
    listed,
    node,
)

# Nothing listens there: discarded by the protocol of that name, and refused at once.
NOWHERE = "127.0.0.1:9"


@pytest.fixture
async def sources() -> AsyncIterator[Sources]:
    """Sources that no service answers, with two nodes, three jobs and three instances."""
    calls = ServiceCalls(
        addresses={"pool": NOWHERE, "dispatcher": NOWHERE, "gateway": NOWHERE},
        dialer=Dialer(load_settings({})),
        token=None,
        timeout_s=0.5,
    )
    made = Sources(calls, now_ms=lambda: NOW)
    fill(made)
    yield made
    await made.close()


def fill(sources: Sources) -> None:
    sources.fleet.begin()
    message = pool_pb2.WatchFleetResponse(
        capability_sets=[capability_set("a", capabilities("en fr", "es de"))],
        nodes=[
            node("n1", used_slots=1, owner_instance="d1", node_owner="acme"),
            node(
                "n2",
                health=common_pb2.NODE_HEALTH_DRAINING,
                used_slots=2,
                drained_by_operator=True,
                drained_ms=NOW - 1000,
                slots_used_at_drain=4,
            ),
            node("n3", ejected_until_ms=NOW + 5000, failures_in_row=3),
        ],
        is_complete=True,
        as_of_ms=NOW,
    )
    sources.fleet.apply(message, NOW)
    for each in (
        change(
            "j1",
            common_pb2.JOB_STATE_DONE,
            80,
            attempt=1,
            node_id="n1",
            outcome="done",
            result_kind=1,
        ),
        change(
            "j2",
            common_pb2.JOB_STATE_FAILED,
            90,
            error=common_pb2.ERROR_REASON_NO_CAPABLE_NODE,
            utterance_index=1,
        ),
        change("j3", attempt=1, node_id="n2", at=95, utterance_index=2),
    ):
        sources.jobs.apply(each)
    for at in (0, 10):
        sources.instances.apply(
            listed(
                at,
                instance("d1", jobs=2, jobs_waiting=1, jobs_done=at * 3),
                instance(
                    "g1",
                    "gateway",
                    sessions=4,
                    missing=at,
                    result_bounds_ms=[100],
                    result_counts=[at, 0],
                ),
                instance("p1", "pool", instances_pb2.INSTANCE_HEALTH_DOWN),
            )
        )
    sources.add_point()


def has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_null(each) for each in value.values())
    if isinstance(value, list):
        return any(has_null(each) for each in value)
    return value is None


async def get(sources: Sources, path: str, **query: str) -> dict[str, Any]:
    document = await Documents(sources, trace_template="https://t/{trace_id}").get(path, query)
    assert not has_null(document)
    # It can be sent, and what is sent is the same.
    assert json.loads(json.dumps(document)) == document
    return document


async def test_the_overview_has_totals_rates_and_shortages(sources: Sources) -> None:
    overview = await get(sources, "overview")
    assert overview["totals"] == {
        "nodes": {"ready": 1, "degraded": 0, "draining": 1, "offline": 0, "ejected": 1},
        "slots": 4,
        "free": 3,
        "sessions": 4,
        "jobs": 2,
        "queue": 1,
    }
    assert overview["rates"] == {
        "window_s": 60,
        "jobs_per_s": 3,
        "retries_per_s": 0,
        "failed_per_s": 0,
        "missing_per_s": 1,
        "p50_ms": 50,
        "p99_ms": 99,
    }
    assert overview["series"]["jobs_per_s"] == [3]
    assert overview["series"]["free"] == [3]
    assert overview["matrix"]["cells"]["fr:de"] == [3, 4, 1]
    assert overview["shortages"][0] == {"src": "en", "tgt": "de", "free": 3, "slots": 4}
    assert overview["instances"]["down"] == 1
    assert overview["instances"]["down_list"][0]["id"] == "p1"
    assert overview["problems"] == {}


async def test_the_overview_of_text_has_its_own_matrix(sources: Sources) -> None:
    matrix = (await get(sources, "overview", kind="text"))["matrix"]
    assert matrix["targets"] == ["*"]
    assert matrix["kind"] == "text"


async def test_a_node_that_drains_shows_its_progress(sources: Sources) -> None:
    nodes = await get(sources, "nodes", health="draining")
    assert nodes["order"] == ["n2"]
    assert nodes["rows"]["n2"]["drain"] == {
        "since_ms": NOW - 1000,
        "used_at_start": 4,
        "used_now": 2,
    }
    assert nodes["counts"]["ready"] == 1


async def test_rows_leave_out_what_is_not_known(sources: Sources) -> None:
    rows = (await get(sources, "nodes"))["rows"]
    assert rows["n1"]["owner"] == "acme"
    assert not {"drain", "ejected_until_ms"} & set(rows["n1"])
    assert rows["n3"]["ejected_until_ms"] == NOW + 5000
    assert rows["n1"]["targets"] == ["de", "es", "*"]
    jobs = (await get(sources, "jobs"))["rows"]
    assert jobs["j1"]["took_ms"] == 80
    assert jobs["j1"]["kind"] == "TRANSLATED"
    assert jobs["j1"]["cut"] == "IS_FINAL"
    assert not {"took_ms", "error", "kind"} & set(jobs["j3"])


async def test_jobs_are_listed_with_counts(sources: Sources) -> None:
    jobs = await get(sources, "jobs", state="failed")
    assert jobs["order"] == ["j2"]
    assert jobs["rows"]["j2"]["error"] == "NO_CAPABLE_NODE"
    assert jobs["counts"] == {"active": 1, "retrying": 0, "done": 1, "failed": 1, "cancelled": 0}
    assert jobs["errors"] == {"NO_CAPABLE_NODE": 1}
    assert jobs["oldest_ms"] == NOW + 80


async def test_missing_changes_are_told(sources: Sources) -> None:
    assert "gap_ms" not in await get(sources, "jobs")
    sources.jobs.note_gap(NOW)
    assert (await get(sources, "jobs"))["gap_ms"] == NOW


async def test_a_known_job_is_shown_while_the_dispatcher_does_not_answer(sources: Sources) -> None:
    job = (await get(sources, "jobs/j2"))["job"]
    assert job["failure"]["explanation"] == explanation("NO_CAPABLE_NODE")
    assert job["trace_url"] == "https://t/j2"
    assert job["steps"] == []
    with pytest.raises(DependencyDownError):
        await get(sources, "jobs/unknown")


async def test_a_known_node_is_shown_while_the_pool_service_does_not_answer(
    sources: Sources,
) -> None:
    document = await get(sources, "nodes/n1")
    assert document["series"] == {"interval_s": 5, "end_ms": NOW, "used": [1], "slots": 4}
    assert [job["id"] for job in document["jobs"]] == ["j1"]
    assert document["leases"] == []
    with pytest.raises(DependencyDownError):
        await get(sources, "nodes/unknown")


async def test_utterances_are_shown_while_no_service_answers(sources: Sources) -> None:
    document = await get(sources, "sessions/s1")
    utterances = document["utterances"]
    assert utterances["order"] == ["2", "1", "0"]
    assert utterances["rows"]["1"]["missing"] is True
    assert utterances["rows"]["0"]["kind"] == "TRANSLATED"
    assert document["session"]["utterances"] == 3
    assert (document["session"]["results"], document["session"]["missing"]) == (1, 1)
    with pytest.raises(DependencyDownError):
        await get(sources, "sessions/unknown")


async def test_what_is_said_to_a_room_is_shown_by_language(sources: Sources) -> None:
    for tgt, job_id in (("de", "j4"), ("es", "j5")):
        pair = common_pb2.LanguagePair(src="en", tgt=tgt)
        sources.jobs.apply(change(job_id, pair=pair, utterance_index=3))
    utterances = (await get(sources, "sessions/s1"))["utterances"]
    assert utterances["order"] == ["3:de", "3:es", "2", "1", "0"]
    assert utterances["rows"]["3:de"]["job_id"] == "j4"
    assert utterances["total"] == 5


async def test_sessions_that_cannot_be_read_are_a_problem(sources: Sources) -> None:
    document = await get(sources, "sessions")
    assert document["total"] == 0
    problem = document["problems"]["sessions"]
    assert problem["since_ms"] == NOW
    assert "session gateway" in problem["message"]
    assert "127.0.0.1" not in problem["message"]


async def test_search_finds_exact_ids_first(sources: Sources) -> None:
    sources.jobs.apply(change("n1"))
    found = (await get(sources, "search", q="n"))["matches"]
    assert [(each["kind"], each["id"]) for each in found] == [
        ("node", "n1"),
        ("node", "n2"),
        ("node", "n3"),
        ("job", "n1"),
    ]
    exact = (await get(sources, "search", q="s1"))["matches"]
    assert exact == [{"kind": "session", "id": "s1", "label": ""}]
    assert (await get(sources, "search", q=""))["matches"] == []
    assert (await get(sources, "search", q="ffffffffffffffffffffffff"))["matches"] == []


async def test_instances_list_the_console_itself(sources: Sources) -> None:
    documents = Documents(sources, own=lambda: instance("c1", "console"))
    document = await documents.get("instances", {})
    assert document["order"] == ["c1", "d1", "g1", "p1"]
    assert document["rows"]["d1"]["stats"]["jobs_waiting"] == 1
    assert document["rows"]["p1"]["health"] == "down"


async def test_instances_list_the_cells_if_there_are_several() -> None:
    pool = Pool()
    sources = Sources(pool, now_ms=lambda: NOW)
    document = await get(sources, "instances")
    assert (document["cells"], pool.asked) == ([], ["ListInstances"])

    pool.cells = 2
    again = Sources(pool, now_ms=lambda: NOW)
    cells = (await get(again, "instances"))["cells"]
    assert cells[0] == {
        "number": 0,
        "state": "ready",
        "address": "redis://a",
        "up": True,
        "nodes": 3,
        "slots": 8,
        "used": 2,
        "sessions": 5,
        "rooms": 1,
    }
    assert cells[1] == {
        "number": 1,
        "state": "draining",
        "address": "redis://b",
        "up": False,
        "reason": "refused",
    }


class Pool(ServiceCalls):
    """Answers calls about instances and cells, and notes them."""

    def __init__(self) -> None:
        super().__init__(addresses={}, dialer=cast(Any, None), token=None)
        self.cells = 1
        self.asked: list[str] = []

    async def call(
        self, service: str, method: str, request: Message, *, metadata: object = None
    ) -> Any:
        self.asked.append(method)
        if method == "ListInstances":
            known = instance("p1", "pool")
            known.settings.add(name="cells", value=str(self.cells))
            return listed(0, known)
        assert method == "ListCells"
        counts = {"nodes": 3, "slots": 8, "used_slots": 2, "sessions": 5, "rooms": 1}
        ready, draining = pool_pb2.CELL_STATE_READY, pool_pb2.CELL_STATE_DRAINING
        return pool_pb2.ListCellsResponse(
            cells=[
                pool_pb2.Cell(number=0, state=ready, address="redis://a", is_up=True, **counts),
                pool_pb2.Cell(number=1, state=draining, address="redis://b", down_reason="refused"),
            ]
        )


async def test_nodes_are_shown_with_their_cell_if_there_are_several(sources: Sources) -> None:
    row = (await get(sources, "nodes"))["rows"]["n1"]
    assert "cell" not in row
    moved = pool_pb2.WatchFleetResponse(nodes=[node("n4", cell=3)], is_complete=True, as_of_ms=NOW)
    sources.fleet.apply(moved, NOW)
    document = await get(sources, "nodes", sort="cell", desc="1")
    assert document["order"][0] == "n4"
    assert [document["rows"][each]["cell"] for each in ("n4", "n1")] == [3, 0]


def bad_queries() -> Iterator[tuple[str, dict[str, str], str]]:
    yield "overview", {"kind": "music"}, "kind"
    yield "overview", {"nonsense": "1"}, "nonsense"
    yield "nodes", {"limit": "0"}, "limit"
    yield "nodes", {"limit": "201"}, "limit"
    yield "nodes", {"limit": "many"}, "limit"
    yield "nodes", {"offset": "-1"}, "offset"
    yield "nodes", {"offset": "9" * 30}, "offset"
    yield "nodes", {"search": "x" * 129}, "search"
    yield "nodes", {"search": "a\x00b"}, "search"
    yield "nodes", {"health": "sick"}, "health"
    yield "nodes", {"sort": "shoe size"}, "sort"
    yield "nodes", {"src": "e n"}, "src"
    yield "jobs", {"desc": "2"}, "desc"
    yield "jobs", {"error": "OOPS"}, "error"
    yield "jobs", {"from_ms": "yesterday"}, "from_ms"
    yield "jobs", {"node": "a/b"}, "node"
    yield "sessions", {"state": "asleep"}, "state"
    yield "rooms", {"language": "e n"}, "language"
    yield "rooms", {"sort": "volume"}, "sort"
    yield "instances", {"search": "x"}, "search"
    yield "nodes/a b", {}, "node_id"
    yield "nodes/", {}, "node_id"
    yield "jobs/" + "j" * 129, {}, "job_id"
    yield "sessions/a/b", {}, "session_id"
    yield "rooms/a b", {}, "room_id"
    yield "rooms/a", {"sort": "joined"}, "sort"
    yield "elsewhere", {}, "path"


@pytest.mark.parametrize(("path", "query", "field"), list(bad_queries()))
async def test_a_bad_query_is_refused_and_names_the_field(
    sources: Sources, path: str, query: dict[str, str], field: str
) -> None:
    with pytest.raises(InvalidMessageError) as refused:
        await Documents(sources).get(path, query)
    assert [name for name, _ in refused.value.fields] == [field]
    assert len(refused.value.message) < 600


def test_every_reason_is_explained() -> None:
    assert set(EXPLANATIONS) == set(common_pb2.ErrorReason.values())
    for text in EXPLANATIONS.values():
        assert text.endswith(".")
        assert len(text) < 120
    assert explanation("OF_A_NEWER_VERSION")


async def test_a_source_keeps_the_time_of_its_first_problem(sources: Sources) -> None:
    problems = sources.problems
    failed: list[str] = []
    problems.on_error.append(failed.append)
    problems.found("jobs", LinguaError("first"))
    problems.found("jobs", LinguaError("second"))
    assert problems.document() == {"jobs": {"message": "second", "since_ms": NOW}}
    problems.solved("jobs")
    assert problems.document() == {}
    assert failed == ["jobs", "jobs"]


def test_the_age_of_a_source_is_the_time_since_it_was_read() -> None:
    now = NOW
    problems = Problems(lambda: now)
    now += 3000
    assert problems.age_s("jobs") == 3
    problems.solved("jobs")
    now += 500
    assert problems.age_s("jobs") == 0.5
    assert problems.age_s("fleet") == 3.5
