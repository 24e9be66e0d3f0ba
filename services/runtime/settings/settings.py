"""Reads settings from the environment, checks them, and tells where each value comes from.

A value comes from the environment (`LINGUA_` and the field's name in capitals), else from the
profile (`LINGUA_PROFILE`), else from WITHOUT_AUTH if auth is off, else from the field's default.
"""

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import PrivateAttr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.console_fields import ConsoleFields
from lingua_scheduler.services.runtime.settings.dispatcher_fields import DispatcherFields
from lingua_scheduler.services.runtime.settings.gateway_fields import GatewayFields
from lingua_scheduler.services.runtime.settings.general_fields import GeneralFields
from lingua_scheduler.services.runtime.settings.groups import GROUPS, PROFILES
from lingua_scheduler.services.runtime.settings.network_fields import AddressFields, GrpcFields
from lingua_scheduler.services.runtime.settings.pool_fields import PoolFields
from lingua_scheduler.services.runtime.settings.quota_fields import (
    WITHOUT_AUTH,
    OwnerFields,
    QuotaFields,
)
from lingua_scheduler.services.runtime.settings.redis_fields import RedisFields
from lingua_scheduler.services.runtime.settings.room_fields import RoomFields
from lingua_scheduler.services.runtime.settings.security_fields import SecurityFields
from lingua_scheduler.services.runtime.settings.web_fields import WebFields

PREFIX = "LINGUA_"
# Variables of single commands, which are no settings, and their meaning.
OF_COMMANDS = {
    "LINGUA_ROOM_TOKEN": "token of a room, for `lingua speak --room` and `lingua listen`",
    "LINGUA_HOST_TOKEN": "token of a room's host, for `lingua rooms token` and `rooms close`",
}

# Kubernetes sets these in every container, for each Service of the namespace.
_KUBERNETES_NAME = re.compile(
    r"_SERVICE_HOST$|_SERVICE_PORT(_\w+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_\w+)?$"
)
_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://")


class SettingRow(NamedTuple):
    """One setting as `lingua config` prints it; secrets are masked."""

    group: str
    name: str
    variable: str
    value: str
    origin: str
    description: str


class Order(NamedTuple):
    """A rule for two settings.

    `times` x `lesser` must be less than `greater`, or equal to it unless `strictly`.
    """

    lesser: str
    greater: str
    why: str
    times: int = 1
    strictly: bool = False


ORDERS = (
    Order(
        "ack_timeout_ms",
        "reservation_ttl_ms",
        "a reservation must outlive the wait for its ACK",
        strictly=True,
    ),
    Order(
        "hedge_after_ms",
        "ack_timeout_ms",
        "a second node is tried only while the first may still answer",
        strictly=True,
    ),
    Order("job_timeout_ms", "running_lease_ms", "a job must not outlive the lease of its slot"),
    Order(
        "node_heartbeat_ms",
        "heartbeat_stale_ms",
        "a node is stale only after three missed heartbeats",
        times=3,
    ),
    Order("heartbeat_batch_ms", "node_heartbeat_ms", "a heartbeat must not wait for the next one"),
    Order("eject_ms", "eject_max_ms", "the first ejection is the shortest"),
    Order("heartbeat_stale_ms", "node_forget_ms", "a node is stale before it is forgotten"),
    Order("running_lease_ms", "job_record_ttl_ms", "a running job must not be forgotten"),
    Order(
        "redis_timeout_ms",
        "reservation_ttl_ms",
        "a reservation must outlive the call that makes it",
        strictly=True,
    ),
    Order("job_timeout_ms", "result_deadline_ms", "a result must not be missing while it is made"),
    Order("session_utterances_max", "result_queue_max", "what is under way has no result yet"),
    Order("resume_within_ms", "kept_result_ms", "a session that is resumed wants its results"),
    Order(
        "max_length_bytes",
        "max_message_bytes",
        "an utterance travels in one message",
        strictly=True,
    ),
)


class _ProfileDefaults(PydanticBaseSettingsSource):
    """The values of the chosen profile."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("all values of a profile are given at once")

    def __call__(self) -> dict[str, Any]:
        profile = str(self.current_state.get("profile", "stable")).strip().lower()
        return dict(PROFILES.get(profile, {}))


class _DefaultsWithoutAuth(PydanticBaseSettingsSource):
    """The defaults that apply only if auth is off."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        raise NotImplementedError("all values are given at once")

    def __call__(self) -> dict[str, Any]:
        is_on = str(self.current_state.get("auth", "off")).strip().lower() == "on"
        return {} if is_on else dict(WITHOUT_AUTH)


class Settings(
    GeneralFields,
    RedisFields,
    AddressFields,
    GrpcFields,
    SecurityFields,
    QuotaFields,
    OwnerFields,
    PoolFields,
    DispatcherFields,
    GatewayFields,
    RoomFields,
    WebFields,
    ConsoleFields,
    BaseSettings,
):
    """All settings of one process, valid and frozen.

    Only `load_settings` reads the environment. Values given to the constructor count as values of
    the environment.

    Raises:
        SettingsError: a value is not allowed, or two contradict each other.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        validate_default=True,
    )

    _given: frozenset[str] = PrivateAttr(default=frozenset())

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            # Without its cause, because a traceback would show a password in a bad URL.
            raise SettingsError("\n".join(_problems(error, values))) from None
        self._given = frozenset(values)
        if broken := [self._broken(order) for order in ORDERS if not self._holds(order)]:
            raise SettingsError("\n".join(broken))
        urls = len(self.redis_url.split())
        if urls > 1 and urls != self.cells:
            raise SettingsError(
                f"LINGUA_REDIS_URL has {urls} URLs and LINGUA_CELLS={self.cells}: it must have one "
                "URL for all cells, or one for each"
            )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Orders the sources; the first that has a value wins."""
        return init_settings, _ProfileDefaults(settings_cls), _DefaultsWithoutAuth(settings_cls)

    def origin(self, name: str) -> str:
        """Where a value comes from: "environment", "profile efficient", "auth off" or "default"."""
        if name in self._given:
            return "environment"
        if name in PROFILES[self.profile]:
            return f"profile {self.profile}"
        return "auth off" if self.auth == "off" and name in WITHOUT_AUTH else "default"

    def origins(self) -> dict[str, str]:
        """The origin of every field, in the order of `rows`."""
        return {name: self.origin(name) for _, name in _names()}

    def rows(self) -> Iterator[SettingRow]:
        """Every setting, group by group, without secrets."""
        for group, name in _names():
            yield SettingRow(
                group=group,
                name=name,
                variable=variable_name(name),
                value=_shown(name, getattr(self, name)),
                origin=self.origin(name),
                description=type(self).model_fields[name].description or "",
            )

    def _holds(self, order: Order) -> bool:
        lesser, greater = getattr(self, order.lesser) * order.times, getattr(self, order.greater)
        return bool(lesser < greater or (lesser == greater and not order.strictly))

    def _broken(self, order: Order) -> str:
        lesser, greater = (
            f"{variable_name(name)}={getattr(self, name)} ({self.origin(name)})"
            for name in (order.lesser, order.greater)
        )
        times = f"{order.times} times " if order.times > 1 else ""
        relation = "less than" if order.strictly else "at most"
        return f"{times}{lesser} must be {relation} {greater}: {order.why}"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Reads the settings from an environment, by default that of the process.

    Raises:
        SettingsError: one line per problem, with the variable, its value and what is allowed.
    """
    environ = os.environ if environ is None else environ
    known = {variable_name(name): name for _, name in _names()}
    return Settings(**{known[key]: value for key, value in environ.items() if key in known})


def unknown_variables(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that begin with `LINGUA_` but set nothing, each with the nearest real name or "".

    Leaves out the variables that Kubernetes adds for Services whose names begin with `lingua`.
    """
    known = [*(variable_name(name) for _, name in _names()), *OF_COMMANDS]
    return [
        (key, next(iter(difflib.get_close_matches(key, known, n=1, cutoff=0.75)), ""))
        for key in sorted(environ)
        if key.startswith(PREFIX) and key not in known and not _is_kubernetes(key, environ[key])
    ]


def variable_name(name: str) -> str:
    """The environment variable that sets a field."""
    return PREFIX + name.upper()


def masked_url(url: str) -> str:
    """The URL, or each of several, with passwords replaced by `***`, even if it is malformed."""
    return " ".join(map(_masked_url, url.split(" ")))


def _masked_url(url: str) -> str:
    head, at, tail = url.rpartition("@")
    if at:
        scheme, slashes, login = head.partition("://") if "://" in head else ("", "", head)
        user, colon, _ = login.partition(":")
        # Without a colon, this may be a user or a password.
        head = f"{scheme}{slashes}{user}:***" if colon else f"{scheme}{slashes}***"
    return re.sub(r"(?i)(password=)[^&#]*", r"\1***", head + at + tail)


def _names() -> Iterator[tuple[str, str]]:
    for group, fields in GROUPS.items():
        for name in fields.model_fields:
            yield group, name


def _problems(error: ValidationError, values: Mapping[str, Any]) -> Iterator[str]:
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(problem["loc"][0])
        field = Settings.model_fields.get(name)
        if field is None:
            yield f"{name}: no such setting"
            continue
        extra = field.json_schema_extra
        allowed = extra["allowed"] if isinstance(extra, dict) else problem["msg"]
        yield f"{variable_name(name)}={_shown(name, values.get(name, ''))!r}: {allowed}"


def _shown(name: str, value: object) -> str:
    return masked_url(str(value)) if name == "redis_url" else str(value)


def _is_kubernetes(key: str, value: str) -> bool:
    if _KUBERNETES_NAME.search(key):
        return True
    return key.endswith("_PORT") and _KUBERNETES_PORT.match(value) is not None
