"""Messages of the services, as tests write them."""

from typing import Any

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, instances_pb2, pool_pb2, rooms_pb2

NOW = 1_700_000_000_000


def capabilities(
    sources: str, targets: str = "", pairs: str = "", semantic: str = ""
) -> common_pb2.NodeCapabilities:
    """Capabilities from codes with spaces between; pairs as "en:es en:de"."""
    return common_pb2.NodeCapabilities(
        asr_langs=sources.split(),
        semantic_langs=(semantic or sources).split(),
        tts_langs=targets.split(),
        nmt_pairs=[
            common_pb2.LanguagePair(src=src, tgt=tgt)
            for src, tgt in (pair.split(":") for pair in pairs.split())
        ],
    )


def node(node_id: str, capability_set: str = "a", **fields: Any) -> pool_pb2.Node:
    """A ready node with four slots, unless fields say otherwise."""
    given = {"health": common_pb2.NODE_HEALTH_READY, "max_concurrent_jobs": 4, **fields}
    return pool_pb2.Node(node_id=node_id, capability_set=capability_set, **given)


def capability_set(name: str, declared: common_pb2.NodeCapabilities) -> pool_pb2.CapabilitySet:
    """A set."""
    return pool_pb2.CapabilitySet(id=name, capabilities=declared)


def change(
    job_id: str = "j1",
    state: common_pb2.JobState.ValueType = common_pb2.JOB_STATE_DISPATCHED,
    at: int = 0,
    **fields: Any,
) -> dispatcher_pb2.JobChange:
    """A change of a job of session s1 at NOW + at, from English to Spanish."""
    given: dict[str, Any] = {
        "created_ms": NOW,
        "session_id": "s1",
        "tenant": "t1",
        "pair": common_pb2.LanguagePair(src="en", tgt="es"),
        "reason": common_pb2.FINALIZE_REASON_IS_FINAL,
        **fields,
    }
    return dispatcher_pb2.JobChange(job_id=job_id, state=state, changed_ms=NOW + at, **given)


def instance(
    name: str,
    service: str = "dispatcher",
    health: instances_pb2.InstanceHealth.ValueType = instances_pb2.INSTANCE_HEALTH_SERVING,
    started_ms: int = 1,
    **stats: Any,
) -> instances_pb2.Instance:
    """An instance with these stats."""
    return instances_pb2.Instance(
        instance_id=name,
        service=service,
        health=health,
        started_ms=started_ms,
        stats=instances_pb2.InstanceStats(**stats),
    )


def listed(at_s: float, *instances: instances_pb2.Instance) -> instances_pb2.ListInstancesResponse:
    """A list that was made at_s after NOW."""
    return instances_pb2.ListInstancesResponse(
        instances=instances, as_of_ms=NOW + round(at_s * 1000)
    )


def room(room_id: str, languages: str = "", speakers: str = "", **fields: Any) -> rooms_pb2.Room:
    """A room that was created at NOW, with two listeners of each language.

    Languages are codes with spaces between, and may have a lag in ms: "es de:1500". Speakers are
    the codes of what each of them speaks.
    """
    given: dict[str, Any] = {"tenant": "t1", "created_ms": NOW, **fields}
    listened = [each.partition(":") for each in languages.split()]
    return rooms_pb2.Room(
        room_id=room_id,
        listeners=2 * len(listened),
        languages=[
            rooms_pb2.RoomLanguage(
                language=code,
                listeners=2,
                speech_listeners=1,
                waiting=2 if lag else 0,
                oldest_waiting_ms=int(lag or 0),
            )
            for code, _, lag in listened
        ],
        speakers=[
            rooms_pb2.RoomSpeakerInfo(
                session_id=f"{room_id}-s{at}", name=f"Speaker {at}", language=code, joined_ms=NOW
            )
            for at, code in enumerate(speakers.split())
        ],
        **given,
    )


def member(name: str, at: int = 0, **fields: Any) -> rooms_pb2.Member:
    """A listener of Spanish captions who came at NOW + at."""
    given: dict[str, Any] = {
        "role": rooms_pb2.ROOM_ROLE_LISTENER,
        "language": "es",
        "listening": rooms_pb2.Listening(language="es", captions=True),
        "gateway_instance": "g1",
        **fields,
    }
    return rooms_pb2.Member(name=name, joined_ms=NOW + at, **given)
