"""How instances announce themselves in Redis, for those that write it and read it. Pure.

lua/announce_instance.lua describes the keys.
"""

from google.protobuf.message import DecodeError

from lingua_scheduler.v1 import instances_pb2

# An instance that has announced nothing for so long does not run.
ALIVE_MS = 15_000
# How long an instance that died is listed.
KEEP_MS = 600_000
# Fields of InstanceStats that a service fills in, besides its histogram; all others are 0.
STATS = {
    "pool": ("allocations", "allocations_refused"),
    "dispatcher": ("jobs", "jobs_waiting", "jobs_done", "jobs_failed", "retries", "nodes"),
    "gateway": ("sessions", "results", "missing"),
}


def instances_key(prefix: str) -> str:
    """The key of the hash of all instances."""
    return f"{prefix}:instances"


def address_key(prefix: str, instance_id: str) -> str:
    """The key of an instance's address, which exists while it runs."""
    return f"{prefix}:instance:{instance_id}"


def settings_key(prefix: str, instance_id: str) -> str:
    """The key of an instance's settings."""
    return f"{prefix}:instance:{instance_id}:settings"


def unpacked(value: bytes) -> instances_pb2.Instance:
    """Reads an announcement.

    Raises:
        ValueError: it is from a version that writes another form.
    """
    time, _, message = value.partition(b" ")
    try:
        instance = instances_pb2.Instance.FromString(message)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    instance.announced_ms = int(time)
    return instance
