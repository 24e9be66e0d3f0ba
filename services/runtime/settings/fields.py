"""The settings one by one: default of the stable profile, range, unit and meaning.

One class is one group, in the order in which `lingua config` prints them. How values are found,
checked against each other and reported is in `settings`.
"""

import ipaddress
import os
import re
import secrets
import socket
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.contract.languages import parse_languages

_HOUR_MS = 3_600_000
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_PREFIX = re.compile(r"(?=.{1,100}$)[A-Za-z0-9:_.-]*(\{[A-Za-z0-9:_.-]+\})?[A-Za-z0-9:_.-]*(?<!:)")

REDIS_URL_FORMS = (
    "redis://[user:password@]host:6379/0, rediss://... (TLS), unix:///path/to/redis.sock, "
    "redis+sentinel://host:26379,host:26379/<master name>/0, redis+cluster://host:7000,host:7001 "
    "(rediss+sentinel:// and rediss+cluster:// with TLS)"
)

Profile = Literal["stable", "efficient"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "human"]
TimeoutBinding = Literal["held", "always"]
OffOrOn = Literal["off", "on"]


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _instance_id(value: str) -> str:
    if value == "":
        host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100] or "host"
        # The pid is 1 in most containers, hence the random end.
        return f"{host}-{os.getpid()}-{secrets.token_hex(2)}"
    if not _ID.fullmatch(value):
        raise ValueError
    return value


def _redis_url(value: str) -> str:
    if value == "":
        return value
    # Half a second of imports that a command without Redis should not pay for.
    from lingua_scheduler.services.runtime.settings.redis_url import parse_redis_url

    parse_redis_url(value)
    return value


def _redis_prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise ValueError
    return value


def _listen(value: str) -> str:
    split_address(value)
    return value


def _listen_or_off(value: str) -> str:
    return _listen(value) if value else value


def _target(value: str) -> str:
    if split_address(value.removeprefix("dns:///"))[1] == 0:
        raise ValueError
    return value


def _targets(value: str) -> str:
    if "," not in value:
        return _target(value)
    for each in value.split(","):
        # gRPC takes a list of addresses, but not of names; a name may stand for several.
        ipaddress.IPv4Address(split_address(_target(each))[0])
    return value


def _target_or_bound(value: str) -> str:
    return _target(value) if value else value


def _languages(value: str) -> str:
    parse_languages(value)
    return value


Languages = Annotated[str, AfterValidator(_languages)]
InstanceId = Annotated[str, AfterValidator(_instance_id)]
RedisUrl = Annotated[str, AfterValidator(_redis_url)]
RedisPrefix = Annotated[str, AfterValidator(_redis_prefix)]
Listen = Annotated[str, AfterValidator(_listen)]
ListenOrOff = Annotated[str, AfterValidator(_listen_or_off)]
Targets = Annotated[str, AfterValidator(_targets)]
TargetOrBound = Annotated[str, AfterValidator(_target_or_bound)]


def _field(default: object, description: str, allowed: str, **constraints: Any) -> Any:
    return Field(
        default=default,
        description=description,
        json_schema_extra={"allowed": allowed},
        **constraints,
    )


def _whole(default: int, low: int, high: int, description: str) -> Any:
    allowed = f"must be a whole number from {low} to {high}"
    return _field(default, description, allowed, ge=low, le=high)


def _listens(default: str, description: str) -> Any:
    return _field(default, description, "must be host:port or [IPv6]:port (port 0: any free one)")


def _listens_or_off(default: str, description: str) -> Any:
    allowed = "must be host:port or [IPv6]:port (port 0: any free one), or empty for off"
    return _field(default, description, allowed)


def _finds(default: str, description: str) -> Any:
    allowed = (
        "must be host:port, [IPv6]:port or dns:///host:port, with a port from 1 to 65535, or "
        "several IPv4 addresses with commas between"
    )
    return _field(default, description, allowed)


class GeneralFields(BaseModel):
    """What concerns the process as a whole."""

    profile: Annotated[Profile, BeforeValidator(_lower)] = _field(
        "stable", "set of defaults for what is not set", "must be stable or efficient"
    )
    instance_id: InstanceId = _field(
        "",
        "name of this process in logs and Redis (empty: host, process id and 4 random digits)",
        "must be 1 to 128 characters of A-Z a-z 0-9 . _ -, or empty",
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = _field(
        "info", "least level that is logged", "must be debug, info, warning or error"
    )
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] = _field(
        "auto", "form of log lines (auto: human on a terminal)", "must be auto, json or human"
    )
    log_lines_per_s: int = _whole(
        50,
        0,
        1_000_000,
        "log lines of one kind in a second, debug lines excepted; further ones are counted in the "
        "next line of that kind, as `left_out` (0: no limit)",
    )
    languages: Languages = _field(
        "",
        "codes of the languages that nodes and clients may name, with commas between; `iso639` "
        "stands for all codes of ISO 639, also with a script or region (empty: iso639)",
        "must be language codes such as en or zh-hant, or iso639, with commas between",
    )


class RedisFields(BaseModel):
    """The shared state."""

    redis_url: RedisUrl = _field(
        "",
        "Redis to use (empty: `lingua up` starts one; a service alone refuses to start)",
        f"must be empty or one of: {REDIS_URL_FORMS}",
        repr=False,
    )
    redis_prefix: RedisPrefix = _field(
        "lingua:v1",
        "start of every key; with a hash tag {..} all keys of a cell share a slot",
        "must be 1 to 100 characters of A-Z a-z 0-9 : _ . -, with at most one hash tag {..} "
        "and no colon at its end",
    )
    redis_timeout_ms: int = _whole(400, 10, 5000, "ms after which a call to Redis has failed")
    redis_dir: str = _field(
        "", "folder for the data of the Redis that `lingua up` starts (empty: temporary)", "a path"
    )


class AddressFields(BaseModel):
    """Where servers listen, and where clients find them."""

    pool_listen: Listen = _listens("127.0.0.1:7710", "where the pool service listens")
    dispatcher_listen: Listen = _listens("127.0.0.1:7720", "where the dispatcher listens")
    gateway_listen: Listen = _listens("127.0.0.1:7730", "where the session gateway listens")
    pool_metrics_listen: ListenOrOff = _listens_or_off(
        "127.0.0.1:9710", "HTTP address of the pool service's /metrics (empty: off)"
    )
    dispatcher_metrics_listen: ListenOrOff = _listens_or_off(
        "127.0.0.1:9720", "HTTP address of the dispatcher's /metrics (empty: off)"
    )
    gateway_metrics_listen: ListenOrOff = _listens_or_off(
        "127.0.0.1:9730", "HTTP address of the session gateway's /metrics (empty: off)"
    )
    pool_health_listen: ListenOrOff = _listens_or_off(
        "", "plain-text gRPC address for probes of the pool service alone (empty: off)"
    )
    dispatcher_health_listen: ListenOrOff = _listens_or_off(
        "", "plain-text gRPC address for probes of the dispatcher alone (empty: off)"
    )
    gateway_health_listen: ListenOrOff = _listens_or_off(
        "", "plain-text gRPC address for probes of the session gateway alone (empty: off)"
    )
    pool_address: Targets = _finds("127.0.0.1:7710", "where clients find the pool service")
    dispatcher_address: Targets = _finds("127.0.0.1:7720", "where clients find the dispatcher")
    dispatcher_advertise: TargetOrBound = _field(
        "",
        "where other dispatchers reach this one (empty: the address that it listens on)",
        "must be host:port with a port from 1 to 65535, or empty",
    )
    gateway_address: Targets = _finds("127.0.0.1:7730", "where clients find the session gateway")


class GrpcFields(BaseModel):
    """All gRPC servers."""

    max_message_bytes: int = _whole(
        4_194_304, 65_536, 268_435_456, "bytes of the largest message, sent or received"
    )
    max_streams_per_connection: int = _whole(
        256, 1, 100_000, "calls that one connection may have under way at a time"
    )
    keepalive_time_ms: int = _whole(
        20_000, 1000, _HOUR_MS, "ms of silence after which a connection is pinged"
    )
    keepalive_timeout_ms: int = _whole(
        5000, 100, 60_000, "ms that a ping may stay unanswered before the connection is dead"
    )
    peer_silence_ms: int = _whole(
        3000,
        300,
        600_000,
        "ms after which a service that says nothing on a stream, and does not answer, is left for "
        "another one; clients and nodes are told the same of gateways and dispatchers",
    )
    drain_grace_ms: int = _whole(
        20_000, 0, 600_000, "ms for what is in flight to finish after SIGTERM"
    )
    channel_renew_ms: int = _whole(
        300_000,
        0,
        24 * _HOUR_MS,
        "ms after which a connection to another service is made anew, so that added instances and "
        "new certificates are found (0: never)",
    )


def _path(description: str) -> Any:
    return _field("", description, "must be the path of a file, or empty")


class SecurityFields(BaseModel):
    """Who may call, and how the lines are kept private."""

    auth: Annotated[OffOrOn, BeforeValidator(_lower)] = _field(
        "off", "whether callers must say who they are, and may do only that", "must be off or on"
    )
    listen_without_auth: bool = _field(
        False,
        "with auth off: whether to listen where other machines can reach it",
        "must be yes or no",
    )
    auth_secret_file: str = _path(
        "secrets that sign and check HS256 tokens, one a line; the first one signs"
    )
    auth_jwks_file: str = _path("JSON Web Key Set that checks RS256 and ES256 tokens")
    auth_issuer: str = _field(
        "", "issuer (iss) that every token must name (empty: any)", "must be text or empty"
    )
    auth_audience: str = _field(
        "lingua-scheduler",
        "audience (aud) that every token must name",
        "must be 1 to 256 characters",
        min_length=1,
        max_length=256,
    )
    token_file: str = _path(
        "token that this process shows where it calls (empty: it signs its own where it has a "
        "secret)"
    )
    tls_cert_file: str = _path("certificate chain of this server, PEM (empty: no TLS)")
    tls_key_file: str = _path("its private key")
    tls_client_ca_file: str = _path(
        "authorities of callers' certificates: with it, every caller must have one (mutual TLS)"
    )
    tls_ca_file: str = _path(
        "authorities of the servers that this process calls (empty: it calls without TLS)"
    )
    tls_client_cert_file: str = _path(
        "certificate chain that this process shows where it calls (empty: that of the server)"
    )
    tls_client_key_file: str = _path("its private key")
    tls_server_name: str = _field(
        "",
        "name that the certificates of the other services must have (empty: the host called)",
        "must be a host name or empty",
    )
    metrics_tls: Annotated[OffOrOn, BeforeValidator(_lower)] = _field(
        "off", "whether /metrics is served with TLS too, by the same files", "must be off or on"
    )


# One gateway process carries about 1000 people who speak all the time (docs/performance.md). A
# tenant gets a fifth of that: enough for most, and no tenant fills a gateway by itself.
_SESSIONS_OF_A_TENANT = 200
# One job for each of these sessions: people take turns, and a node translates an utterance in less
# time than the next one takes to say.
_JOBS_OF_A_TENANT = _SESSIONS_OF_A_TENANT
# As much as that many sessions can say if nobody ever pauses: only speech that is sent faster than
# people speak is over the limit.
_AUDIO_S_PER_MINUTE_OF_A_TENANT = 60 * _SESSIONS_OF_A_TENANT


class QuotaFields(BaseModel):
    """What one tenant may use at most, unless its token says otherwise; 0: no limit.

    Callers without a tenant share what one tenant may use. See also WITHOUT_AUTH.
    """

    quota_sessions: int = _whole(
        _SESSIONS_OF_A_TENANT,
        0,
        10_000_000,
        "sessions of one tenant at a time (0: no limit, the default with auth off)",
    )
    quota_jobs: int = _whole(
        _JOBS_OF_A_TENANT,
        0,
        10_000_000,
        "jobs of one tenant in flight at a time (0: no limit, the default with auth off)",
    )
    quota_audio_s_per_minute: int = _whole(
        _AUDIO_S_PER_MINUTE_OF_A_TENANT,
        0,
        4_000_000,
        "seconds of speech of one tenant in a minute (0: no limit, the default with auth off)",
    )


# Defaults with auth off. A caller then names its tenant itself, so a limit per tenant protects
# nobody; it would only stop the one user of a laptop.
WITHOUT_AUTH: dict[str, int] = dict.fromkeys(QuotaFields.model_fields, 0)


class OwnerFields(BaseModel):
    """Limits of one owner of nodes, if their tokens name an owner; 0: no limit."""

    owner_nodes: int = _whole(100, 0, 1_000_000, "nodes of one owner at a time")
    owner_slots: int = _whole(1000, 0, 100_000_000, "slots of all nodes of one owner together")


class PoolFields(BaseModel):
    """Nodes, selection, reservation and affinity."""

    sample_k: int = _whole(20, 1, 1000, "nodes drawn at random for one selection")
    pool_size: int = _whole(100, 1, 10_000, "nodes per shard of a pool")
    max_pools: int = _whole(1000, 1, 100_000, "shards per language pair")
    heartbeat_stale_ms: int = _whole(
        15_000, 100, _HOUR_MS, "ms without a heartbeat after which a node gets no jobs"
    )
    load_threshold: float = _field(
        0.95,
        "load from 0 to 1 over which a node gets no jobs",
        "must be a number from 0 to 1",
        ge=0,
        le=1,
        allow_inf_nan=False,
    )
    eject_failures: int = _whole(
        3, 1, 255, "failures in a row, no two after each other of one session, that eject a node"
    )
    eject_ms: int = _whole(30_000, 1, _HOUR_MS, "ms of a first ejection; doubles each time")
    eject_max_ms: int = _whole(300_000, 1, 24 * _HOUR_MS, "ms of the longest ejection")
    eject_max_share: float = _field(
        0.5,
        "share of the nodes drawn for a job that ejection leaves out at most",
        "must be a number from 0 to 1",
        ge=0,
        le=1,
        allow_inf_nan=False,
    )
    reservation_ttl_ms: int = _whole(5000, 10, 600_000, "ms that a slot waits for its ACK")
    running_lease_ms: int = _whole(
        30_000, 100, _HOUR_MS, "ms that a running job holds its slot without news of it"
    )
    binding_ttl_ms: int = _whole(300_000, 1000, 24 * _HOUR_MS, "ms that a turn stays on its node")
    held_in_row_max: int = _whole(
        4, 0, 1000, "pauses in a row over which a node may hold audio of a turn (0: no limit)"
    )
    timeout_binding: Annotated[TimeoutBinding, BeforeValidator(_lower)] = _field(
        "held",
        "which Timeout jobs bind the turn to their node: those whose audio it holds, or always",
        "must be held or always",
    )
    job_record_ttl_ms: int = _whole(
        _HOUR_MS, 1000, 168 * _HOUR_MS, "ms that a job is remembered after its last change"
    )
    unplaced_record_ttl_ms: int = _whole(
        600_000, 1000, 168 * _HOUR_MS, "ms that a job is remembered that no node has had"
    )
    node_reconnect_grace_ms: int = _whole(
        10_000, 0, 600_000, "ms within which a node that comes back keeps its jobs"
    )
    node_forget_ms: int = _whole(
        _HOUR_MS, 1000, 168 * _HOUR_MS, "ms without a heartbeat after which a node is forgotten"
    )
    sweep_interval_ms: int = _whole(1000, 10, _HOUR_MS, "ms between two looks for what is over")


class DispatcherFields(BaseModel):
    """The way of a job to its node."""

    ack_timeout_ms: int = _whole(1500, 10, 600_000, "ms that a node has to acknowledge a job")
    max_retry: int = _whole(2, 0, 20, "attempts after the first one")
    queue_wait_ms: int = _whole(2000, 0, 600_000, "ms that a job waits for room")
    waiting_bytes_max: int = _whole(
        268_435_456,
        0,
        17_179_869_184,
        "bytes of audio of the jobs that wait for room at most, half of it of one tenant",
    )
    hedge_after_ms: int = _whole(
        0, 0, 600_000, "ms without an ACK after which a second node is tried (0: off)"
    )
    job_timeout_ms: int = _whole(20_000, 100, _HOUR_MS, "ms that a node has for a job")
    affinity_wait_ms: int = _whole(
        20_000,
        0,
        600_000,
        "ms that a job waits for the node of its turn while that is full or silent, but never more "
        "than two thirds of its time (0: it goes elsewhere at once)",
    )
    affinity_away_ms: int = _whole(
        3000, 0, 600_000, "ms of that while the node is disconnected and may connect elsewhere"
    )
    node_heartbeat_ms: int = _whole(5000, 10, 600_000, "ms between two heartbeats of a node")
    heartbeat_batch_ms: int = _whole(
        1000, 10, 600_000, "ms between two batches of heartbeats to the pool service"
    )
    kept_result_ms: int = _whole(
        300_000, 1000, 24 * _HOUR_MS, "ms that a result is kept for a session's next gateway"
    )
    kept_results_bytes: int = _whole(
        268_435_456,
        33_554_432,
        1 << 40,
        "bytes of such results in Redis at most; a quarter of it for one tenant",
    )


class GatewayFields(BaseModel):
    """Cutting speech into utterances, and results in order."""

    pause_ms: int = _whole(3000, 100, 600_000, "ms without audio that end an utterance")
    voice_pause_ms: int = _whole(
        800, 100, 600_000, "ms without voice that end an utterance, in sessions that ask for that"
    )
    max_duration_ms: int = _whole(10_000, 500, 600_000, "ms of audio of the longest utterance")
    max_length_bytes: int = _whole(
        512_000, 1024, 1_966_080, "bytes of audio of the longest utterance"
    )
    hangover_manual_ms: int = _whole(
        200, 0, 10_000, "ms that late audio may join an utterance that the app ended"
    )
    hangover_auto_ms: int = _whole(
        150, 0, 10_000, "ms that late audio may join an utterance that a limit ended"
    )
    padding_manual_ms: int = _whole(
        200, 0, 10_000, "ms of silence added to an utterance that the app ended"
    )
    padding_auto_ms: int = _whole(
        150, 0, 10_000, "ms of silence added to an utterance that a limit ended"
    )
    short_merge_ms: int = _whole(
        400, 0, 10_000, "ms under which a fragment that a pause ended joins the next utterance"
    )
    short_wait_ms: int = _whole(
        10_000, 0, 600_000, "ms that such a fragment waits for the next utterance"
    )
    result_deadline_ms: int = _whole(
        30_000, 100, _HOUR_MS, "ms from an utterance's end to its result; then it is missing"
    )
    redis_outage_max_ms: int = _whole(
        300_000,
        0,
        24 * _HOUR_MS,
        "ms without Redis that do not count against an utterance's result_deadline_ms",
    )
    result_queue_max: int = _whole(
        200, 1, 100_000, "results of a session that are kept at most until the client has seen them"
    )
    session_utterances_max: int = _whole(
        16, 1, 100_000, "utterances of a session under way at most; further audio is not read"
    )
    session_idle_ms: int = _whole(
        1_800_000, 1000, 24 * _HOUR_MS, "ms without a word of the client that close a session"
    )
    held_audio_max_bytes: int = _whole(
        1_500_000,
        0,
        2 * 1024 * 1024,
        "bytes of audio kept for a speaker's unfinished sentence, in case its node is lost",
    )
    held_audio_total_bytes: int = _whole(
        256 * 1024 * 1024, 0, 1 << 40, "the same for all sessions of a gateway together"
    )
    resume_within_ms: int = _whole(
        300_000, 1000, 24 * _HOUR_MS, "ms within which a broken session can be resumed"
    )


GROUPS: dict[str, type[BaseModel]] = {
    "general": GeneralFields,
    "redis": RedisFields,
    "addresses": AddressFields,
    "grpc": GrpcFields,
    "security": SecurityFields,
    "quotas": QuotaFields,
    "owners": OwnerFields,
    "pool": PoolFields,
    "dispatcher": DispatcherFields,
    "gateway": GatewayFields,
}

# What a profile sets other than the defaults above.
PROFILES: dict[str, dict[str, int]] = {
    "stable": {},
    "efficient": {
        "sample_k": 40,
        "reservation_ttl_ms": 3000,
        "ack_timeout_ms": 500,
        "max_retry": 3,
        "queue_wait_ms": 500,
        "hedge_after_ms": 250,
    },
}
