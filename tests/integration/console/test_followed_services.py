"""What the console tells of services, nodes, jobs and sessions that really run."""

import json

from tests.support.audio import speech
from tests.support.console_backend import Console, following
from tests.support.raw_client import RawClient, new_session
from tests.support.raw_node import whoever_gets_it
from tests.support.scene import Scene
from tests.support.services import PoolProcess

TEXT = "the text that was said"


async def test_nodes_and_their_room_are_followed(console: Console, patient: Scene) -> None:
    node = await patient.node(slots=3)
    cell = f"{patient.src}:{patient.tgt}"
    overview = await console.until("overview", lambda each: cell in each["matrix"]["cells"])
    assert overview["matrix"]["cells"][cell] == [3, 3, 1]
    page = await console.get("nodes", search=node.node_id)
    assert page["order"] == [node.node_id]
    row = page["rows"][node.node_id]
    assert (row["health"], row["slots"], row["used"]) == ("ready", 3, 0)
    assert row["sources"] == [patient.src]

    gateway = patient.gateway()
    await gateway.submit(patient.spec())
    assign = await node.take_job()
    page = await console.until(
        f"nodes/{node.node_id}", lambda each: each["node"]["used"] and each["leases"]
    )
    assert page["leases"][0]["job_id"] == assign.attempt.job_id
    assert page["node"]["capabilities"]["tts"] == [patient.tgt]
    await console.until("overview", lambda each: each["matrix"]["cells"][cell] == [2, 3, 1])

    await node.bye()
    await console.until("nodes", lambda each: not each["counts"]["ready"], search=node.node_id)


async def test_a_drain_is_followed_until_the_node_is_empty(
    console: Console, patient: Scene
) -> None:
    node = await patient.node(slots=2)
    gateway = patient.gateway()
    await gateway.submit(patient.spec())
    assign = await node.take_job()
    await console.actions.drain(node.node_id, None)
    drained = await console.until(f"nodes/{node.node_id}", lambda each: each["node"].get("drain"))
    assert drained["node"]["drain"]["used_at_start"] == 1
    assert drained["node"]["health"] == "draining"
    await node.result(assign)
    await console.until(
        f"nodes/{node.node_id}", lambda each: each["node"]["drain"]["used_now"] == 0
    )
    await console.actions.ready(node.node_id, None)
    await console.until(f"nodes/{node.node_id}", lambda each: each["node"]["health"] == "ready")
    await console.actions.remove(node.node_id, None)


async def test_a_job_is_followed_over_its_attempts(console: Console, patient: Scene) -> None:
    nodes = [await patient.node(name) for name in "ab"]
    gateway = patient.gateway()
    await gateway.submit(patient.spec())
    first, assign = await whoever_gets_it(nodes)
    job_id = assign.attempt.job_id
    active = await console.until("jobs", lambda each: each["total"], search=job_id)
    assert active["rows"][job_id]["state"] == "active"
    await first.ack(assign)
    await first.fail(assign, "BROKEN", worth_retry=True)
    second, again = await whoever_gets_it([node for node in nodes if node is not first])
    await second.ack(again)
    await second.result(again, TEXT)

    done = await console.until("jobs", lambda each: each["total"], search=job_id, state="done")
    row = done["rows"][job_id]
    assert row["nodes"] == [first.node_id, second.node_id]
    assert row["node"] == second.node_id
    assert (row["attempts"], row["kind"], row["cut"]) == (2, "TRANSLATED", "IS_FINAL")
    document = await console.until(f"jobs/{job_id}", lambda each: each["job"]["steps"])
    job = document["job"]
    assert [each["outcome"] for each in job["attempt_list"]] == ["failed", "done"]
    assert {"ALLOCATE", "SEND", "ACK", "NODE"} <= {step["kind"] for step in job["steps"]}
    assert job["trace_url"] == f"https://traces.example.com/{job_id}"
    assert TEXT not in json.dumps(document)
    failed = await console.until(f"nodes/{first.node_id}", lambda each: each["failures"])
    assert failed["failures"][0]["job_id"] == job_id
    found = await console.get("search", q=job_id)
    assert found["matches"][0]["kind"] == "job"


async def test_a_job_that_finds_no_node_tells_why(console: Console, patient: Scene) -> None:
    gateway = patient.gateway()
    spec = patient.spec()
    await gateway.submit(spec)
    failed = await console.until(
        "jobs",
        lambda each: any("error" in row for row in each["rows"].values()),
        session=spec.session_id,
    )
    assert failed["errors"] == {"NO_CAPABLE_NODE": 1}
    (job_id,) = failed["order"]
    job = (await console.get(f"jobs/{job_id}"))["job"]
    assert job["failure"]["reason"] == "NO_CAPABLE_NODE"
    assert job["failure"]["explanation"].startswith("No known node")


async def test_a_job_can_be_cancelled(console: Console, patient: Scene) -> None:
    node = await patient.node()
    gateway = patient.gateway()
    await gateway.submit(patient.spec())
    assign = await node.take_job()
    await console.actions.cancel(assign.attempt.job_id, "the operator says so", None)
    assert "the operator says so" in await node.expect_cancel(assign)
    await console.until(
        "jobs", lambda each: each["total"], search=assign.attempt.job_id, state="cancelled"
    )


async def test_a_session_is_a_timeline_of_utterances(
    console: Console, patient: Scene, client: RawClient
) -> None:
    node = await patient.node()
    opened = await client.open(new_session(patient.src, patient.tgt))
    # A pause cuts it, and the node holds it for the next one.
    await client.send(speech(1))
    await node.held(await node.take_job())
    await client.result(0)
    await client.send(speech(2), final=True)
    await node.result(await node.take_job(), TEXT)
    await client.result(1)

    def is_over(document: dict[str, object]) -> bool:
        utterances: dict[str, dict[str, dict[str, object]]] = document["utterances"]  # type: ignore[assignment]
        rows = utterances["rows"]
        return len(rows) == 2 and all("result_ms" in row for row in rows.values())

    document = await console.until(f"sessions/{opened.session_id}", is_over)
    session, rows = document["session"], document["utterances"]["rows"]
    assert session["gateway"] == "gateway-7"
    assert session["directions"] == [f"{patient.src}:{patient.tgt}"]
    assert document["utterances"]["order"] == ["1", "0"]
    assert (rows["0"]["kind"], rows["0"]["cut"], rows["0"]["joined_into"]) == ("HELD", "TIMEOUT", 1)
    assert (rows["1"]["kind"], rows["1"]["cut"], rows["1"]["joined"]) == (
        "TRANSLATED",
        "IS_FINAL",
        [0],
    )
    assert rows["1"]["spoken_from_ms"] <= rows["1"]["cut_ms"] <= rows["1"]["result_ms"]
    assert TEXT not in json.dumps(document)

    listed = await console.until("sessions", lambda each: opened.session_id in each["rows"])
    assert listed["partial"] is False
    assert (await console.get("search", q=opened.session_id))["matches"][0]["kind"] == "session"


async def test_instances_are_listed_with_their_settings(console: Console, patient: Scene) -> None:
    document = await console.until("instances", lambda each: each["total"] >= 3)
    services = {row["service"] for row in document["rows"].values()}
    assert services == {"pool", "dispatcher", "gateway"}
    pause = next(each for each in document["settings"] if each["name"] == "pause_ms")
    assert pause["differs"] is True
    assert pause["variable"] == "LINGUA_PAUSE_MS"
    (seen,) = [each for each in pause["values"] if each["value"] == "300"]
    assert seen["instances"] == ["gateway-7"]


async def test_one_service_that_is_away_does_not_stop_the_others(
    pool_process: PoolProcess, patient: Scene
) -> None:
    node = await patient.node()
    nowhere = "127.0.0.1:9"
    async with following(
        pool_address=pool_process.address, dispatcher_address=nowhere, gateway_address=nowhere
    ) as console:
        document = await console.until(
            "nodes",
            lambda each: node.node_id in each["rows"] and "jobs" in each["problems"],
            search=node.node_id,
        )
        assert "dispatcher" in document["problems"]["jobs"]["message"]
        assert "fleet" not in document["problems"]
        sessions = await console.get("sessions")
        assert "session gateway" in sessions["problems"]["sessions"]["message"]


async def test_the_rates_are_those_of_the_jobs(console: Console, patient: Scene) -> None:
    node = await patient.node()
    gateway = patient.gateway()
    await console.until("overview", lambda each: each["instances"]["serving"] >= 3)
    before = (await console.get("overview"))["rates"]["jobs_per_s"]
    for index in range(3):
        await gateway.submit(patient.spec(index))
        await node.result(await node.take_job())
    overview = await console.until("overview", lambda each: each["rates"]["jobs_per_s"] > before)
    assert overview["rates"]["jobs_per_s"] < 10
