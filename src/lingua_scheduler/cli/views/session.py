"""Text output for sessions."""

import time
from collections.abc import Iterable

from lingua_scheduler.cli.views.output import ago, moment, span
from lingua_scheduler.cli.views.states import state
from lingua_scheduler.cli.views.table import Column, fact_page, paragraph, table
from lingua_scheduler.v1 import session_pb2

# At most this many indexes are listed; a session may have thousands.
_NAMED = 20


def session_list(sessions: Iterable[session_pb2.Session]) -> str:
    """One session per line."""
    now_ms = _now_ms()
    return table(
        (
            *(Column("SESSION"), Column("CLIENT"), Column("TENANT", 2)),
            *(Column("UTTERANCES", 5), Column("WAITING"), Column("RESULTS", 3)),
            *(Column("MISSING"), Column("AGE", 6), Column("AUDIO", 4), Column("GATEWAY", 1)),
        ),
        [
            (
                session.session_id,
                _client(session),
                session.tenant or "-",
                str(session.next_utterance_index),
                str(len(session.waiting)),
                str(session.results),
                str(session.missing),
                span(now_ms - session.opened_ms) if session.opened_ms else "-",
                ago(session.last_chunk_ms, now_ms),
                session.gateway_instance or "-",
            )
            for session in sessions
        ],
    )


def session_page(session: session_pb2.Session) -> str:
    """Everything about one session, one fact per line."""
    now_ms = _now_ms()
    facts = [
        ("client", _client(session)),
        ("tenant", session.tenant or "-"),
        ("gateway", session.gateway_instance or "-"),
        ("epoch", str(session.epoch)),
        ("opened", _when(session.opened_ms, now_ms)),
        ("last audio", _when(session.last_chunk_ms, now_ms)),
        ("utterances", str(session.next_utterance_index)),
        ("waiting", _waiting(session)),
        ("results", str(session.results)),
        ("missing", str(session.missing)),
        *(("turn", _turn(turn)) for turn in session.turns),
    ]
    jobs = paragraph(f"'lingua jobs list --session {session.session_id}' lists its jobs.")
    return f"{fact_page(('session', session.session_id), facts)}\n\n{jobs}"


def _turn(turn: session_pb2.SessionTurn) -> str:
    where = f"next utterance goes to {turn.node_id}" if turn.node_id else "free"
    return (
        f"{turn.direction.src}->{turn.direction.tgt} {where}, "
        f"held over {turn.holds_in_row} pauses in a row"
    )


def _client(session: session_pb2.Session) -> str:
    return state("connected" if session.connected else "away")


def _waiting(session: session_pb2.Session) -> str:
    if not session.waiting:
        return "none"
    named = " ".join(map(str, session.waiting[:_NAMED]))
    more = len(session.waiting) - _NAMED
    return f"{named} and {more} more" if more > 0 else named


def _when(time_ms: int, now_ms: int) -> str:
    return f"{moment(time_ms)} ({ago(time_ms, now_ms)})" if time_ms else "-"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
