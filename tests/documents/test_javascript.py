"""Every JavaScript block of the documents runs as printed, beside a real scheduler.

Addresses are replaced, since the test's scheduler has free ports, and names that the text leaves to
the reader are supplied. Pages are not run here: the compiler checks what they use of the SDK.
"""

import asyncio
import re
import wave
from pathlib import Path

import pytest

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from tests.documents.test_programs import with_nodes
from tests.support.javascript import SDK, node_program, run_program

from .blocks import Block, blocks

SUPPLIED = {"askYourLoginServer": 'async () => "token"'}

__all__ = ["with_nodes"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which programs find the SDK, ws and a recording."""
    node_program()
    scope = tmp_path / "node_modules" / "@lingua-scheduler"
    scope.mkdir(parents=True)
    (scope / "client").symlink_to(SDK)
    (tmp_path / "node_modules" / "ws").symlink_to(SDK / "node_modules" / "ws")
    with wave.open(str(tmp_path / "hello.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(32_000))
    return tmp_path


@pytest.mark.parametrize("block", blocks("js"), ids=str)
async def test_every_program_runs(block: Block, folder: Path, with_nodes: LocalScheduler) -> None:
    supplied = "".join(
        f"const {name} = {value};\n" for name, value in SUPPLIED.items() if name in block.code
    )
    web = next(each.web for each in with_nodes.services if each.web)
    code = block.code.replace("127.0.0.1:7740", web)
    program = folder / "program.mjs"
    program.write_text(supplied + code)
    exit_code, written = await run_program(program, cwd=folder)
    assert exit_code == 0, written
    if "console.log(result" in code:
        assert "->" in written, written


@pytest.mark.parametrize("block", blocks("html"), ids=str)
async def test_every_page_uses_only_what_exists(block: Block, folder: Path) -> None:
    (script,) = re.findall(r'<script type="module">\n(.*?)</script>', block.code, re.DOTALL)
    assert await problems_of(script, folder) == ""


async def test_the_check_of_pages_finds_what_does_not_exist(folder: Path) -> None:
    script = 'import { Player } from "/sdk/index.js";\nnew Player().sing();\n'
    assert "Property 'sing' does not exist" in await problems_of(script, folder)


async def problems_of(script: str, folder: Path) -> str:
    """What the compiler has against a script."""
    page = folder / "page.mjs"
    page.write_text(script.replace("/sdk/index.js", "@lingua-scheduler/client"))
    options = "--noEmit --allowJs --checkJs --module nodenext --target es2022 --lib es2022,dom"
    compiler = SDK / "node_modules" / "typescript" / "bin" / "tsc"
    _, written = await asyncio.wait_for(
        run_program(compiler, *options.split(), "--strict", "false", str(page), cwd=folder), 120
    )
    return written
