"""The web entry of a process that runs all services."""

import uuid
from pathlib import Path

import aiohttp

from tests.support.all_in_one import AllInOneProcess
from tests.support.audio import speech
from tests.support.raw_client import new_session, working
from tests.support.scene import scene
from tests.support.services import running
from tests.support.web_client import web_client


async def test_a_page_talks_to_a_process_with_all_services(redis_url: str) -> None:
    process = AllInOneProcess(
        redis_url=redis_url, prefix=f"test:{uuid.uuid4().hex[:8]}", hangover_manual_ms=50
    )
    async with (
        running(process),
        scene(process.dispatcher, process.pool) as here,  # type: ignore[arg-type]
        working(await here.node()),
        web_client(process.gateway.web_address) as web,
    ):
        await web.open(new_session(here.src, here.tgt))
        await web.chunk(0, speech(4), final=True)
        assert (await web.result(0))["texts"]["translated"] == "4"
        await web.say(close={})
        assert await web.closed() == 1000


async def test_its_log_lines_name_the_gateway(redis_url: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    process = AllInOneProcess(
        redis_url=redis_url,
        prefix=f"test:{uuid.uuid4().hex[:8]}",
        auth="on",
        auth_secret_file=str(secret),
    )
    async with running(process):
        url = f"http://{process.gateway.web_address}/v1/languages"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            assert response.status == 401
        await process.logs("call refused")
        assert [each["service"] for each in process._events("call refused")] == ["gateway"]
        assert process._events("listening for web")[-1]["service"] == "gateway"
