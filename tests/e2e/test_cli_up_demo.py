"""`lingua up --demo`: a page to try with one command, and what a person gets there."""

import asyncio
import json
import os
import re
import signal
import socket
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from lingua_scheduler.cli.sample_node.words import LANGUAGES
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.e2e.test_cli_up import gone, redis_pid
from tests.security.issuer import Issuer
from tests.support.commands import WITHIN_S, Start, Up, becomes, lingua
from tests.support.spoken import spoken
from tests.support.talk import Talk

NODES = ["demo-1", "demo-2"]
QUESTION, ANSWER = spoken(), spoken("It is behind the church")


async def both_get_an_answer(up: Up, talk: Talk, a: str = "en", b: str = "es") -> None:
    """Two people say a sentence each: texts, in both languages, and their own voices."""
    results, client = await talk.converse(a, b, QUESTION, ANSWER)
    heard = {"en": "Demo: heard ", "es": "Demo: se oyeron ", "zh": "演示：听到了 "}
    for result, (src, tgt), said in zip(results, ((a, b), (b, a)), (QUESTION, ANSWER), strict=True):
        assert result["kind"] == "KIND_TRANSLATED", up.log()
        assert result["nodeId"] in NODES
        assert result["texts"]["source"].startswith(heard[src])
        assert result["texts"]["translated"].startswith(heard[tgt])
        assert client.speech[int(result.get("utteranceIndex", 0))] == said
    assert "partial" in client.told()


async def offers(talk: Talk) -> list[dict[str, Any]]:
    status, listed = await talk.get("/v1/languages")
    assert status == 200
    found: list[dict[str, Any]] = json.loads(listed)["directions"]
    return found


async def test_two_people_can_talk_through_the_page_at_once(up: Start) -> None:
    running = up("--demo")
    told = running.ready()
    assert [each["node_id"] for each in told["nodes"]] == NODES
    gateway = next(each for each in told["services"] if each["service"] == "gateway")
    assert told["talk"] == {"url": f"http://{gateway['web']}/", "lan_url": "", "token_s": 0}
    talk = Talk(told["talk"]["url"])
    await both_get_an_answer(running, talk)
    await both_get_an_answer(running, talk, "zh", "en")
    # New directions appear within seconds.
    async with asyncio.timeout(WITHIN_S):
        while not (offered := await offers(talk)):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert {(each["src"], each["tgt"]) for each in offered} == set(product(LANGUAGES, repeat=2))
    assert all(each["speech"] for each in offered)


async def test_the_page_is_at_the_address(up: Start) -> None:
    status, page = await Talk(up("--demo").ready()["talk"]["url"]).get("/")
    assert status == 200
    assert "<title>" in page


@pytest.mark.long
async def test_it_works_with_several_instances_of_each_service(up: Start) -> None:
    running = up("--demo", "--split", "--instances", "2")
    told = running.ready()
    webs = [each["web"] for each in told["services"] if each["service"] == "gateway"]
    assert told["talk"]["url"] == f"http://{webs[0]}/"
    for web in webs:
        await both_get_an_answer(running, Talk(f"http://{web}/"))


async def test_with_auth_and_tls_the_address_has_a_token_that_admits(
    up: Start, tmp_path: Path
) -> None:
    secret, certs = tmp_path / "secret", tmp_path / "certs"
    assert lingua("token", "secret", str(secret)).returncode == 0
    assert lingua("certs", "init", str(certs), "--host", "127.0.0.1").returncode == 0
    running = up(
        "--demo",
        LINGUA_AUTH="on",
        LINGUA_AUTH_SECRET_FILE=str(secret),
        LINGUA_TLS_CA_FILE=str(certs / "ca.crt"),
        LINGUA_TLS_CERT_FILE=str(certs / "gateway.crt"),
        LINGUA_TLS_KEY_FILE=str(certs / "gateway.key"),
    )
    page = running.ready()["talk"]
    assert page["url"].startswith("https://127.0.0.1:")
    assert page["token_s"] == 12 * 3600
    talk = Talk(page["url"], ca=str(certs / "ca.crt"))
    shown = json.loads(lingua("token", "show", "--json", talk.token).stdout)
    assert shown["claims"]["role"] == "client"
    await both_get_an_answer(running, talk)
    without = Talk(page["url"].partition("#")[0], ca=str(certs / "ca.crt"))
    assert (await without.get("/v1/languages"))[0] == 401
    assert "token" not in running.log()


def test_if_it_cannot_sign_tokens_it_ends_with_what_to_set(tmp_path: Path) -> None:
    keys = str(Issuer(tmp_path).jwks_file)
    ended = lingua("up", "--demo", LINGUA_AUTH="on", LINGUA_AUTH_JWKS_FILE=keys)
    assert ended.returncode == 2, ended.stderr
    # Both fail; either may be noticed first.
    assert re.search(r"demo-[12] \(pid ", ended.stderr)
    assert "set LINGUA_TOKEN_FILE to a file with one, or LINGUA_AUTH_SECRET_FILE" in ended.stderr
    assert ended.stdout == ""


def test_it_says_where_the_page_is_first_of_all_and_in_80_columns() -> None:
    ended = lingua("up", "--demo", "--seconds", "0.2")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("Talk   http://127.0.0.1:")
    assert "demo-1, demo-2, which translate nothing" in ended.stdout
    assert "lingua sim-nodes" not in ended.stdout
    # Commands to type and addresses are as long as they are.
    assert all(cell_len(line) <= 80 for line in lines[:3])
    assert ended.stderr == "", "only warnings are logged"


def test_a_taken_port_of_the_page_makes_way_for_a_free_one(up: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = up("--demo", LINGUA_GATEWAY_WEB_LISTEN=address).ready()
    assert address not in told["talk"]["url"]
    assert told["notes"] == [
        f"{address} is in use: gateway's web entry listens on a free port instead"
    ]


@pytest.mark.long
def test_without_a_page_there_is_no_address_of_one(up: Start) -> None:
    assert up(LINGUA_TALK_PAGE="no").ready()["talk"] is None
    assert up(LINGUA_GATEWAY_WEB_LISTEN="").ready()["talk"] is None
    ended = lingua("up", "--seconds", "0.2", LINGUA_TALK_PAGE="no")
    assert ended.stdout.startswith("Redis  ")


async def test_a_node_that_is_killed_comes_back(up: Start) -> None:
    running = up("--demo")
    told = running.ready()
    pids = {each["node_id"]: each["pid"] for each in told["nodes"]}
    os.kill(pids["demo-1"], signal.SIGKILL)
    words = f"demo-1 | pid {pids['demo-1']} ended unexpectedly: killed by SIGKILL; restarting it"
    assert becomes(lambda: words in running.log())
    assert becomes(lambda: "demo-1 | is back (pid " in running.log()), running.log()
    await both_get_an_answer(running, Talk(told["talk"]["url"]))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nodes_end_with_the_command(up: Start, number: signal.Signals) -> None:
    running = up("--demo")
    told = running.ready()
    pids = [redis_pid(told["redis"])]
    pids += [each["pid"] for each in (*told["services"], *told["nodes"])]
    running.process.send_signal(number)
    running.end()
    assert gone(*pids)


@pytest.mark.long
def test_two_of_them_can_share_a_redis(up: Start) -> None:
    with EmbeddedRedis() as redis:
        first = up("--demo", LINGUA_REDIS_URL=redis.url).ready()
        second = up("--demo", LINGUA_REDIS_URL=redis.url).ready()
    assert len({each["node_id"] for each in (*first["nodes"], *second["nodes"])}) == 4
