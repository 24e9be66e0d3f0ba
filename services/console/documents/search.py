"""Search by id: nodes, jobs, sessions and rooms."""

import asyncio
import re
from collections.abc import Iterable
from typing import Any

from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.job_pages import ids_with_prefix
from lingua_scheduler.services.console.store.jobs import state_of
from lingua_scheduler.services.runtime.contract.text_formats import ID
from lingua_scheduler.services.runtime.errors import LinguaError

_MOST = 20
# Services are asked only for what looks like a whole id: any prefix would be one call each.
_WHOLE_ID_CHARS = 16
_ID = re.compile(ID)

Match = dict[str, str]


async def search(sources: Sources, query: Query) -> dict[str, Any]:
    """The document `search`: exact ids first, then ids that begin with the text."""
    text = query.text("q")
    query.done()
    if not text:
        return {"matches": []}
    sources.fleet.settle(sources.now_ms())
    found = [
        *_nodes(sources, text),
        *_jobs(sources, text),
        *_sessions(sources, text),
        *_rooms(sources, text),
    ]
    if all(match["id"] != text for match in found):
        found += await _elsewhere(sources, text)
    found.sort(key=lambda match: (match["id"] != text, len(match["id"])))
    return {"matches": found[:_MOST]}


def _nodes(sources: Sources, text: str) -> Iterable[Match]:
    fleet = sources.fleet
    for node_id in _begin(fleet.nodes, text):
        node = fleet.nodes[node_id]
        yield _match("node", node_id, f"{node.group}, {node.used} of {node.slots} slots in use")


def _jobs(sources: Sources, text: str) -> Iterable[Match]:
    for job_id in _begin((job.job_id for job in sources.jobs), text):
        job = sources.jobs.get(job_id)
        if job is not None:
            yield _match("job", job_id, _job_label(job.state, job.src, job.tgt))


def _sessions(sources: Sources, text: str) -> Iterable[Match]:
    listed = {each.session_id: each for each in sources.sessions.listed().sessions}
    for session_id in _begin({*listed, *sources.jobs.sessions()}, text):
        session = listed.get(session_id)
        label = f"tenant {session.tenant}" if session is not None and session.tenant else ""
        yield _match("session", session_id, label)


def _rooms(sources: Sources, text: str) -> Iterable[Match]:
    listed = {each.room_id: each for each in sources.rooms.listed().rooms}
    for room_id in _begin(listed, text):
        yield _match("room", room_id, listed[room_id].options.name)


async def _elsewhere(sources: Sources, text: str) -> list[Match]:
    """Asks for a job, session or room that is not kept here."""
    if len(text) < _WHOLE_ID_CHARS or not _ID.fullmatch(text):
        return []
    job, session, room = await asyncio.gather(
        sources.job_reads.get(text),
        sources.sessions.get(text),
        sources.rooms.get(text),
        return_exceptions=True,
    )
    for each in (job, session, room):
        if isinstance(each, BaseException) and not isinstance(each, LinguaError):
            raise each
    found = []
    if not isinstance(job, BaseException):
        found.append(
            _match("job", text, _job_label(state_of(job.state), job.pair.src, job.pair.tgt))
        )
    if not isinstance(session, BaseException):
        found.append(_match("session", text, f"tenant {session.tenant}" if session.tenant else ""))
    if not isinstance(room, BaseException):
        found.append(_match("room", text, room.options.name))
    return found


def _begin(ids: Iterable[str], text: str) -> list[str]:
    return ids_with_prefix(ids, text, _MOST)


def _job_label(state: str, src: str, tgt: str) -> str:
    return f"{state}, {src} to {tgt}"


def _match(kind: str, name: str, label: str) -> Match:
    return {"kind": kind, "id": name, "label": label}
