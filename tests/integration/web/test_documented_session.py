"""The session that docs/web.md shows goes over the wire as it is shown."""

import base64
import json
from pathlib import Path
from typing import Any

from tests.support.scene import Scene
from tests.support.web_client import WebClient

PAGE = Path(__file__).parents[3] / "docs" / "web.md"


def transcript() -> tuple[list[str], list[str]]:
    """What the client sends in the first session of the page, and what it receives."""
    _, _, rest = PAGE.read_text().partition("\n> {")
    shown = ("> {" + rest).partition("```")[0].splitlines()
    assert all(line.startswith(("> ", "< ")) for line in shown)
    return (
        [line[2:] for line in shown if line.startswith(">")],
        [line[2:] for line in shown if line.startswith("<")],
    )


def kinds(event: dict[str, Any]) -> str:
    """The kind of an event, and of an utterance's event."""
    ((kind, content),) = event.items()
    steps = {"finalized", "accepted"} & set(content) if kind == "utterance" else set()
    return " ".join([kind, *steps])


async def test_the_session_of_the_page_goes_as_it_is_shown(web: WebClient, patient: Scene) -> None:
    sent, received = transcript()
    events = [
        event
        for frame in received
        if not frame.startswith("B")
        for event in json.loads(frame)["events"]
    ]
    node = await patient.node()
    closing = [frame for frame in sent if "resultsSeen" in frame or "close" in frame]
    for frame in sent[: -len(closing)]:
        if frame.startswith("B"):
            await web.socket.send_bytes(base64.b64decode(frame[1:], validate=True))
        else:
            # Languages of its own, which no node of another test has.
            said = json.loads(frame)
            said["open"]["new"]["direction"]["src"] = patient.src
            await web.socket.send_str(json.dumps(said))
    assign = await node.expect_assign()
    await node.ack(assign)
    await web.event("utterance", lambda event: "accepted" in event)
    await node.result(assign, "hola", speech=bytes(8))
    await web.result(0)
    for frame in closing:
        await web.socket.send_str(frame)
    assert await web.closed() == 1000
    assert web.speech[0] == bytes(8)
    assert [kinds(event) for event in web.events] == [kinds(event) for event in events]
    for shown, event in zip(events, web.events, strict=True):
        ((kind, content),) = shown.items()
        assert set(content) <= set(event[kind]), f"{kind} has no longer what the page shows"
