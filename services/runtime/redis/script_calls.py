"""Packs the arguments of the Lua scripts. Made by `make script-calls` from lua/: edit that.

A call is the name of a script and its arguments, for `RedisLink.call` and `RedisLink.send`. A
script that takes settings is a class, which keeps them encoded and whose method `call` takes the
rest; a script that takes none is a function. The headers in lua/ say what the arguments mean.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

Text: TypeAlias = str | bytes
Number: TypeAlias = int | float
Word: TypeAlias = str | bytes | int | float
Words: TypeAlias = tuple[Word, ...]
# The first is a str, which mypy cannot say of a tuple that is made with a star.
Call: TypeAlias = tuple[Any, ...]

_YES, _NO = b"1", b"0"


def _encoded(setting: Word) -> bytes:
    if isinstance(setting, bytes):
        return setting
    if isinstance(setting, str):
        return setting.encode()
    return repr(int(setting) if isinstance(setting, bool) else setting).encode()


class Admit:
    """Arguments of lua/admit.lua."""

    def __init__(self, *, hold_ms: Number) -> None:
        self._hold_ms = _encoded(hold_ms)

    def call(
        self, *, job: Text, tenant: Text, max_jobs: Number, max_audio_ms: Number, audio_ms: Number
    ) -> Call:
        """What differs from call to call."""
        return ("admit", job, tenant, max_jobs, max_audio_ms, audio_ms, self._hold_ms)


class Want:
    """Arguments of lua/lib/want.lua."""

    def __init__(
        self,
        *,
        sample_k: Number,
        pool_size: Number,
        heartbeat_stale_ms: Number,
        load_threshold: Number,
        eject_max_share: Number,
    ) -> None:
        self._sample_k = _encoded(sample_k)
        self._pool_size = _encoded(pool_size)
        self._heartbeat_stale_ms = _encoded(heartbeat_stale_ms)
        self._load_threshold = _encoded(load_threshold)
        self._eject_max_share = _encoded(eject_max_share)

    def call(
        self,
        *,
        seed: Number,
        src: Text,
        tgt: Text,
        require_tts: bool,
        stages: Number,
        preferred: Text,
        strict: bool,
        instance: Text,
        tenant: Text,
        session: Text,
        excluded: Sequence[str],
    ) -> Words:
        """What differs from call to call."""
        return (
            seed,
            src,
            tgt,
            _YES if require_tts else _NO,
            stages,
            preferred,
            _YES if strict else _NO,
            instance,
            tenant,
            session,
            self._sample_k,
            self._pool_size,
            self._heartbeat_stale_ms,
            self._load_threshold,
            self._eject_max_share,
            len(excluded),
            *excluded,
        )


class Allocate:
    """Arguments of lua/allocate.lua."""

    def __init__(
        self,
        *,
        many_cells: bool,
        hold_ms: Number,
        reservation_ttl_ms: Number,
        binding_ttl_ms: Number,
        timeout_binds: bool,
        job_record_ttl_ms: Number,
        job_log_max: Number,
    ) -> None:
        self._many_cells = _encoded(many_cells)
        self._hold_ms = _encoded(hold_ms)
        self._reservation_ttl_ms = _encoded(reservation_ttl_ms)
        self._binding_ttl_ms = _encoded(binding_ttl_ms)
        self._timeout_binds = _encoded(timeout_binds)
        self._job_record_ttl_ms = _encoded(job_record_ttl_ms)
        self._job_log_max = _encoded(job_log_max)

    def call(
        self,
        *,
        job: Text,
        attempt: Number,
        key: Text,
        home: Text,
        utterance: Number,
        session_epoch: Number,
        reason: Number,
        may_wait: bool,
        max_jobs: Number,
        max_audio_ms: Number,
        audio_ms: Number,
        unbound: Number,
        taken_node: Text,
        taken_cell: Text,
        taken_path: Number,
        want: Words,
    ) -> Call:
        """What differs from call to call."""
        return (
            "allocate",
            job,
            attempt,
            key,
            home,
            utterance,
            session_epoch,
            reason,
            _YES if may_wait else _NO,
            max_jobs,
            max_audio_ms,
            audio_ms,
            unbound,
            taken_node,
            taken_cell,
            taken_path,
            self._many_cells,
            self._hold_ms,
            self._reservation_ttl_ms,
            self._binding_ttl_ms,
            self._timeout_binds,
            self._job_record_ttl_ms,
            self._job_log_max,
            *want,
        )


class AnnounceInstance:
    """Arguments of lua/announce_instance.lua."""

    def __init__(
        self, *, writes: Number, reads_from: Number, reads_to: Number, version: Text
    ) -> None:
        self._writes = _encoded(writes)
        self._reads_from = _encoded(reads_from)
        self._reads_to = _encoded(reads_to)
        self._version = _encoded(version)

    def call(
        self,
        *,
        instance: Text,
        address: Text,
        ttl_ms: int,
        keep_ms: int,
        message: Text,
        settings: Text,
    ) -> Call:
        """What differs from call to call."""
        return (
            "announce_instance",
            instance,
            address,
            ttl_ms,
            keep_ms,
            message,
            settings,
            self._writes,
            self._reads_from,
            self._reads_to,
            self._version,
        )


class BindSession:
    """Arguments of lua/bind_session.lua."""

    def __init__(self, *, binding_ttl_ms: Number, held_in_row_max: Number) -> None:
        self._binding_ttl_ms = _encoded(binding_ttl_ms)
        self._held_in_row_max = _encoded(held_in_row_max)

    def call(
        self,
        *,
        tenant: Text,
        session: Text,
        src: Text,
        tgt: Text,
        kind: Text,
        node_id: Text,
        utterance: int,
        job: Text,
        attempt: int,
        cell: Text,
    ) -> Call:
        """What differs from call to call."""
        return (
            "bind_session",
            tenant,
            session,
            src,
            tgt,
            kind,
            node_id,
            utterance,
            job,
            attempt,
            cell,
            self._binding_ttl_ms,
            self._held_in_row_max,
        )


def clear_session(*, tenant: Text, session: Text, directions: Iterable[tuple[Text, Text]]) -> Call:
    """Arguments of lua/clear_session.lua."""
    return ("clear_session", tenant, session, *chain.from_iterable(directions))


class CloseRoom:
    """Arguments of lua/close_room.lua."""

    def __init__(self, *, idle_ms: Number) -> None:
        self._idle_ms = _encoded(idle_ms)

    def call(self, *, room: Text) -> Call:
        """What differs from call to call."""
        return ("close_room", room, self._idle_ms)


class Commit:
    """Arguments of lua/commit.lua."""

    def __init__(self, *, running_lease_ms: Number, job_record_ttl_ms: Number) -> None:
        self._running_lease_ms = _encoded(running_lease_ms)
        self._job_record_ttl_ms = _encoded(job_record_ttl_ms)

    def call(self, *, node_id: Text, job: Text, attempt: int) -> Call:
        """What differs from call to call."""
        return ("commit", node_id, job, attempt, self._running_lease_ms, self._job_record_ttl_ms)


def compare_clock(*, own_ms: Number) -> Call:
    """Arguments of lua/compare_clock.lua."""
    return ("compare_clock", own_ms)


class Complete:
    """Arguments of lua/complete.lua."""

    def __init__(
        self,
        *,
        eject_failures: Number,
        eject_ms: Number,
        eject_max_ms: Number,
        job_record_ttl_ms: Number,
        job_log_max: Number,
    ) -> None:
        self._eject_failures = _encoded(eject_failures)
        self._eject_ms = _encoded(eject_ms)
        self._eject_max_ms = _encoded(eject_max_ms)
        self._job_record_ttl_ms = _encoded(job_record_ttl_ms)
        self._job_log_max = _encoded(job_log_max)

    def call(
        self,
        *,
        node_id: Text,
        job: Text,
        attempt: int,
        outcome: Text,
        why: Text,
        final: Text,
        is_fault: bool,
        steps: Text,
        kind: int,
    ) -> Call:
        """What differs from call to call."""
        return (
            "complete",
            node_id,
            job,
            attempt,
            outcome,
            why,
            final,
            _YES if is_fault else _NO,
            steps,
            kind,
            self._eject_failures,
            self._eject_ms,
            self._eject_max_ms,
            self._job_record_ttl_ms,
            self._job_log_max,
        )


def count_cells(*, cells: Number) -> Call:
    """Arguments of lua/count_cells.lua."""
    return ("count_cells", cells)


def count_holds(*, tenant: Text, what: Text) -> Call:
    """Arguments of lua/count_holds.lua."""
    return ("count_holds", tenant, what)


class CreateRoom:
    """Arguments of lua/create_room.lua."""

    def __init__(self, *, idle_ms: Number) -> None:
        self._idle_ms = _encoded(idle_ms)

    def call(
        self,
        *,
        room: Text,
        tenant: Text,
        options: Text,
        secret: Text,
        created_ms: Number,
        next_index: Number,
        max_members: int,
        max_speakers: int,
        max_languages: int,
        max_rooms: Number,
        elsewhere: Number,
    ) -> Call:
        """What differs from call to call."""
        return (
            "create_room",
            room,
            tenant,
            options,
            secret,
            created_ms,
            next_index,
            max_members,
            max_speakers,
            max_languages,
            max_rooms,
            elsewhere,
            self._idle_ms,
        )


class EndJob:
    """Arguments of lua/end_job.lua."""

    def __init__(
        self, *, job_record_ttl_ms: Number, unplaced_record_ttl_ms: Number, job_log_max: Number
    ) -> None:
        self._job_record_ttl_ms = _encoded(job_record_ttl_ms)
        self._unplaced_record_ttl_ms = _encoded(unplaced_record_ttl_ms)
        self._job_log_max = _encoded(job_log_max)

    def call(
        self,
        *,
        job: Text,
        home: Text,
        final: Text,
        why: Text,
        error: int,
        steps: Text,
        key: Text,
        tenant: Text,
        session: Text,
        utterance: int,
        src: Text,
        tgt: Text,
        reason: int,
    ) -> Call:
        """What differs from call to call."""
        return (
            "end_job",
            job,
            home,
            final,
            why,
            error,
            steps,
            key,
            tenant,
            session,
            utterance,
            src,
            tgt,
            reason,
            self._job_record_ttl_ms,
            self._unplaced_record_ttl_ms,
            self._job_log_max,
        )


class EndSession:
    """Arguments of lua/end_session.lua."""

    def __init__(self, *, ttl_ms: Number) -> None:
        self._ttl_ms = _encoded(ttl_ms)

    def call(self, *, session: Text, epoch: Number) -> Call:
        """What differs from call to call."""
        return ("end_session", session, epoch, self._ttl_ms)


def fetch_result(*, job: Text) -> Call:
    """Arguments of lua/fetch_result.lua."""
    return ("fetch_result", job)


class ForgetInstances:
    """Arguments of lua/forget_instances.lua."""

    def __init__(self, *, instances_per_step: Number, keep_ms: Number) -> None:
        self._instances_per_step = _encoded(instances_per_step)
        self._keep_ms = _encoded(keep_ms)

    def call(self, *, cursor: Text) -> Call:
        """What differs from call to call."""
        return ("forget_instances", cursor, self._instances_per_step, self._keep_ms)


class Heartbeat:
    """Arguments of lua/heartbeat.lua."""

    def __init__(self, *, running_lease_ms: Number, heartbeat_stale_ms: Number) -> None:
        self._running_lease_ms = _encoded(running_lease_ms)
        self._heartbeat_stale_ms = _encoded(heartbeat_stale_ms)

    def call(self, *, beats: Iterable[tuple[Text, Number, Number, Number, Sequence[str]]]) -> Call:
        """What differs from call to call."""
        rows: list[Word] = []
        for node_id, epoch, health, load, running in beats:
            rows += (node_id, epoch, health, load, len(running), *running)
        return ("heartbeat", self._running_lease_ms, self._heartbeat_stale_ms, *rows)


class JoinRoom:
    """Arguments of lua/join_room.lua."""

    def __init__(self, *, gateway: Text, lease_ms: Number, idle_ms: Number) -> None:
        self._gateway = _encoded(gateway)
        self._lease_ms = _encoded(lease_ms)
        self._idle_ms = _encoded(idle_ms)

    def call(
        self,
        *,
        room: Text,
        member: Text,
        role: Text,
        language: Text,
        flags: Text,
        name: Text,
        joined_ms: Number,
        change: int,
        rejoin: bool,
    ) -> Call:
        """What differs from call to call."""
        return (
            "join_room",
            room,
            member,
            role,
            language,
            flags,
            name,
            joined_ms,
            change,
            _YES if rejoin else _NO,
            self._gateway,
            self._lease_ms,
            self._idle_ms,
        )


class KeepResult:
    """Arguments of lua/keep_result.lua."""

    def __init__(self, *, ttl_ms: Number, max_bytes: Number) -> None:
        self._ttl_ms = _encoded(ttl_ms)
        self._max_bytes = _encoded(max_bytes)

    def call(self, *, job: Text, result: Text, size: Number, node_id: Text, attempt: int) -> Call:
        """What differs from call to call."""
        return ("keep_result", job, result, size, node_id, attempt, self._ttl_ms, self._max_bytes)


class KeepRooms:
    """Arguments of lua/keep_rooms.lua."""

    def __init__(
        self,
        *,
        gateway: Text,
        lease_ms: Number,
        idle_ms: Number,
        captions_max: Number,
        speech_ms: Number,
    ) -> None:
        self._gateway = _encoded(gateway)
        self._lease_ms = _encoded(lease_ms)
        self._idle_ms = _encoded(idle_ms)
        self._captions_max = _encoded(captions_max)
        self._speech_ms = _encoded(speech_ms)

    def call(self, *, expire: bool, rooms: Iterable[tuple[Text, Number]]) -> Call:
        """What differs from call to call."""
        return (
            "keep_rooms",
            _YES if expire else _NO,
            self._gateway,
            self._lease_ms,
            self._idle_ms,
            self._captions_max,
            self._speech_ms,
            *chain.from_iterable(rooms),
        )


class KeepSessions:
    """Arguments of lua/keep_sessions.lua."""

    def __init__(self, *, ttl_ms: Number) -> None:
        self._ttl_ms = _encoded(ttl_ms)

    def call(self, *, sessions: Iterable[tuple[Text, int, Number]]) -> Call:
        """What differs from call to call."""
        return ("keep_sessions", self._ttl_ms, *chain.from_iterable(sessions))


def leave_cell(*, most: Number, node_ids: Iterable[Text]) -> Call:
    """Arguments of lua/leave_cell.lua."""
    return ("leave_cell", most, *node_ids)


class LeaveRoom:
    """Arguments of lua/leave_room.lua."""

    def __init__(self, *, gateway: Text) -> None:
        self._gateway = _encoded(gateway)

    def call(self, *, room: Text, member: Text, change: Number) -> Call:
        """What differs from call to call."""
        return ("leave_room", room, member, change, self._gateway)


class LeaveSession:
    """Arguments of lua/leave_session.lua."""

    def __init__(self, *, ttl_ms: Number) -> None:
        self._ttl_ms = _encoded(ttl_ms)

    def call(
        self,
        *,
        session: Text,
        epoch: int,
        seen: Number,
        results: int,
        missing: int,
        last_chunk_ms: Number,
    ) -> Call:
        """What differs from call to call."""
        return (
            "leave_session",
            session,
            epoch,
            seen,
            results,
            missing,
            last_chunk_ms,
            self._ttl_ms,
        )


def left_spoken(*, room: Text, wanted: Iterable[tuple[Number, Text]]) -> Call:
    """Arguments of lua/left_spoken.lua."""
    return ("left_spoken", room, *chain.from_iterable(wanted))


class LookUpNode:
    """Arguments of lua/look_up_node.lua."""

    def __init__(self, *, heartbeat_stale_ms: Number) -> None:
        self._heartbeat_stale_ms = _encoded(heartbeat_stale_ms)

    def call(self, *, node_id: Text, incarnation: Text, node_owner: Text) -> Call:
        """What differs from call to call."""
        return ("look_up_node", node_id, incarnation, node_owner, self._heartbeat_stale_ms)


class MovePools:
    """Arguments of lua/move_pools.lua."""

    def __init__(self, *, pool_size: Number, max_pools: Number) -> None:
        self._pool_size = _encoded(pool_size)
        self._max_pools = _encoded(max_pools)

    def call(
        self,
        *,
        node_id: Text,
        epoch: Number,
        pools_hash: Text,
        join: Sequence[str],
        leave: Iterable[Text],
    ) -> Call:
        """What differs from call to call."""
        return (
            "move_pools",
            node_id,
            epoch,
            pools_hash,
            self._pool_size,
            self._max_pools,
            len(join),
            *join,
            *leave,
        )


class OpenSession:
    """Arguments of lua/open_session.lua."""

    def __init__(self, *, gateway: Text, ttl_ms: Number) -> None:
        self._gateway = _encoded(gateway)
        self._ttl_ms = _encoded(ttl_ms)

    def call(
        self,
        *,
        session: Text,
        epoch: int,
        token: Text,
        tenant: Text,
        opened: Text,
        opened_ms: Number,
        next_index: Number,
        acked: Number,
        max_sessions: Number,
        elsewhere: Number,
        cuts: Iterable[tuple[Number, Text]],
    ) -> Call:
        """What differs from call to call."""
        return (
            "open_session",
            session,
            epoch,
            token,
            tenant,
            opened,
            opened_ms,
            next_index,
            acked,
            max_sessions,
            elsewhere,
            self._gateway,
            self._ttl_ms,
            *chain.from_iterable(cuts),
        )


def orphan_state(*, job: Text, attempt: int, node_id: Text) -> Call:
    """Arguments of lua/orphan_state.lua."""
    return ("orphan_state", job, attempt, node_id)


class PutSpoken:
    """Arguments of lua/put_spoken.lua."""

    def __init__(self, *, captions_max: Number, speech_ms: Number, idle_ms: Number) -> None:
        self._captions_max = _encoded(captions_max)
        self._speech_ms = _encoded(speech_ms)
        self._idle_ms = _encoded(idle_ms)

    def call(
        self,
        *,
        room: Text,
        language: Text,
        index: Number,
        entry: Text,
        speech: Text,
        original: Text,
    ) -> Call:
        """What differs from call to call."""
        return (
            "put_spoken",
            room,
            language,
            index,
            entry,
            speech,
            original,
            self._captions_max,
            self._speech_ms,
            self._idle_ms,
        )


def read_spoken(
    *, room: Text, language: Text, start: Number, count: int, newest: bool, with_speech: bool
) -> Call:
    """Arguments of lua/read_spoken.lua."""
    return (
        "read_spoken",
        room,
        language,
        start,
        count,
        _YES if newest else _NO,
        _YES if with_speech else _NO,
    )


class RecordCuts:
    """Arguments of lua/record_cuts.lua."""

    def __init__(self, *, ttl_ms: Number, keep: Number) -> None:
        self._ttl_ms = _encoded(ttl_ms)
        self._keep = _encoded(keep)

    def call(
        self,
        *,
        session: Text,
        epoch: int,
        seen: Number,
        results: int,
        missing: int,
        last_chunk_ms: Number,
        first: Number,
        acked: Number,
        cuts: Iterable[tuple[Number, Text]],
    ) -> Call:
        """What differs from call to call."""
        return (
            "record_cuts",
            session,
            epoch,
            seen,
            results,
            missing,
            last_chunk_ms,
            first,
            acked,
            self._ttl_ms,
            self._keep,
            *chain.from_iterable(cuts),
        )


class RecordSpoken:
    """Arguments of lua/record_spoken.lua."""

    def __init__(
        self, *, ttl_ms: Number, keep: Number, due_ms: Number, lease_ms: Number, idle_ms: Number
    ) -> None:
        self._ttl_ms = _encoded(ttl_ms)
        self._keep = _encoded(keep)
        self._due_ms = _encoded(due_ms)
        self._lease_ms = _encoded(lease_ms)
        self._idle_ms = _encoded(idle_ms)

    def call(
        self,
        *,
        session: Text,
        epoch: int,
        seen: Number,
        results: int,
        missing: int,
        last_chunk_ms: Number,
        first: Number,
        acked: Number,
        room: Text,
        src: Text,
        floor: Number,
        cuts: Iterable[tuple[Number, Text, Text]],
    ) -> Call:
        """What differs from call to call."""
        return (
            "record_spoken",
            session,
            epoch,
            seen,
            results,
            missing,
            last_chunk_ms,
            first,
            acked,
            room,
            src,
            floor,
            self._ttl_ms,
            self._keep,
            self._due_ms,
            self._lease_ms,
            self._idle_ms,
            *chain.from_iterable(cuts),
        )


def record_steps(*, job: Text, steps: Text) -> Call:
    """Arguments of lua/record_steps.lua."""
    return ("record_steps", job, steps)


class RegisterNode:
    """Arguments of lua/register_node.lua."""

    def __init__(
        self,
        *,
        heartbeat_stale_ms: Number,
        running_lease_ms: Number,
        owner_nodes: Number,
        owner_slots: Number,
    ) -> None:
        self._heartbeat_stale_ms = _encoded(heartbeat_stale_ms)
        self._running_lease_ms = _encoded(running_lease_ms)
        self._owner_nodes = _encoded(owner_nodes)
        self._owner_slots = _encoded(owner_slots)

    def call(
        self,
        *,
        node_id: Text,
        incarnation: Text,
        stream: Text,
        health: Number,
        load: Number,
        max_concurrent_jobs: Number,
        stages: Number,
        owner_instance: Text,
        owner_address: Text,
        asr_langs: Text,
        semantic_langs: Text,
        tts_langs: Text,
        nmt_pairs: Text,
        pools_hash: Text,
        node_owner: Text,
        epoch_before: Number,
        drained_ms_before: Number,
        owner_nodes_elsewhere: Number,
        owner_slots_elsewhere: Number,
        running: Sequence[str],
        finished: Iterable[Text],
    ) -> Call:
        """What differs from call to call."""
        return (
            "register_node",
            node_id,
            incarnation,
            stream,
            health,
            load,
            max_concurrent_jobs,
            stages,
            owner_instance,
            owner_address,
            asr_langs,
            semantic_langs,
            tts_langs,
            nmt_pairs,
            pools_hash,
            node_owner,
            epoch_before,
            drained_ms_before,
            owner_nodes_elsewhere,
            owner_slots_elsewhere,
            self._heartbeat_stale_ms,
            self._running_lease_ms,
            self._owner_nodes,
            self._owner_slots,
            len(running),
            *running,
            *finished,
        )


class Release:
    """Arguments of lua/release.lua."""

    def __init__(
        self, *, eject_failures: Number, eject_ms: Number, eject_max_ms: Number, job_log_max: Number
    ) -> None:
        self._eject_failures = _encoded(eject_failures)
        self._eject_ms = _encoded(eject_ms)
        self._eject_max_ms = _encoded(eject_max_ms)
        self._job_log_max = _encoded(job_log_max)

    def call(
        self,
        *,
        node_id: Text,
        job: Text,
        attempt: int,
        why: Text,
        is_fault: bool,
        final: Text,
        may_run: bool,
    ) -> Call:
        """What differs from call to call."""
        return (
            "release",
            node_id,
            job,
            attempt,
            why,
            _YES if is_fault else _NO,
            final,
            _YES if may_run else _NO,
            self._eject_failures,
            self._eject_ms,
            self._eject_max_ms,
            self._job_log_max,
        )


class RemoveNode:
    """Arguments of lua/remove_node.lua."""

    def __init__(self, *, pools_per_step: Number, pool_size: Number) -> None:
        self._pools_per_step = _encoded(pools_per_step)
        self._pool_size = _encoded(pool_size)

    def call(self, *, node_id: Text, epoch: Number, forget: bool, silent_ms: Number) -> Call:
        """What differs from call to call."""
        return (
            "remove_node",
            node_id,
            epoch,
            _YES if forget else _NO,
            silent_ms,
            self._pools_per_step,
            self._pool_size,
        )


class Reserve:
    """Arguments of lua/reserve.lua."""

    def __init__(
        self, *, heartbeat_stale_ms: Number, reservation_ttl_ms: Number, job_record_ttl_ms: Number
    ) -> None:
        self._heartbeat_stale_ms = _encoded(heartbeat_stale_ms)
        self._reservation_ttl_ms = _encoded(reservation_ttl_ms)
        self._job_record_ttl_ms = _encoded(job_record_ttl_ms)

    def call(self, *, node_id: Text, job: Text, attempt: Number) -> Call:
        """What differs from call to call."""
        return (
            "reserve",
            node_id,
            job,
            attempt,
            self._heartbeat_stale_ms,
            self._reservation_ttl_ms,
            self._job_record_ttl_ms,
        )


def select_node(*, want: Words) -> Call:
    """Arguments of lua/select_node.lua."""
    return ("select_node", *want)


def set_node_health(*, node_id: Text, epoch: Number, health: Number, by_operator: bool) -> Call:
    """Arguments of lua/set_node_health.lua."""
    return ("set_node_health", node_id, epoch, health, _YES if by_operator else _NO)


class Sweep:
    """Arguments of lua/sweep.lua."""

    def __init__(
        self,
        *,
        nodes_per_step: Number,
        heartbeat_stale_ms: Number,
        node_reconnect_grace_ms: Number,
        node_forget_ms: Number,
    ) -> None:
        self._nodes_per_step = _encoded(nodes_per_step)
        self._heartbeat_stale_ms = _encoded(heartbeat_stale_ms)
        self._node_reconnect_grace_ms = _encoded(node_reconnect_grace_ms)
        self._node_forget_ms = _encoded(node_forget_ms)

    def call(self, *, cursor: Text) -> Call:
        """What differs from call to call."""
        return (
            "sweep",
            cursor,
            self._nodes_per_step,
            self._heartbeat_stale_ms,
            self._node_reconnect_grace_ms,
            self._node_forget_ms,
        )


class Take:
    """Arguments of lua/take.lua."""

    def __init__(self, *, reservation_ttl_ms: Number, job_record_ttl_ms: Number) -> None:
        self._reservation_ttl_ms = _encoded(reservation_ttl_ms)
        self._job_record_ttl_ms = _encoded(job_record_ttl_ms)

    def call(
        self,
        *,
        job: Text,
        attempt: Number,
        look: bool,
        bound: Text,
        bound_path: Number,
        may_wait: bool,
        want: Words,
    ) -> Call:
        """What differs from call to call."""
        return (
            "take",
            job,
            attempt,
            _YES if look else _NO,
            bound,
            bound_path,
            _YES if may_wait else _NO,
            self._reservation_ttl_ms,
            self._job_record_ttl_ms,
            *want,
        )


class TakeSession:
    """Arguments of lua/take_session.lua."""

    def __init__(self, *, gateway: Text, ttl_ms: Number) -> None:
        self._gateway = _encoded(gateway)
        self._ttl_ms = _encoded(ttl_ms)

    def call(self, *, session: Text, token: Text, tenant: Text, tries: Number) -> Call:
        """What differs from call to call."""
        return ("take_session", session, token, tenant, tries, self._gateway, self._ttl_ms)
