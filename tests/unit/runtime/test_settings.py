"""Settings: where values come from, and the errors of bad ones."""

import re
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.general_fields import extended_id
from lingua_scheduler.services.runtime.settings.settings import (
    Settings,
    load_settings,
    masked_url,
    unknown_variables,
)

QUOTAS = ("quota_sessions", "quota_jobs", "quota_audio_s_per_minute", "quota_rooms")


def problems(**variables: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings({f"LINGUA_{name.upper()}": value for name, value in variables.items()})
    return str(caught.value).splitlines()


def test_an_empty_environment_gives_the_stable_defaults() -> None:
    settings = load_settings({})

    assert (settings.profile, settings.sample_k, settings.hedge_after_ms) == ("stable", 20, 0)
    origins = settings.origins()
    assert {origins.pop(name) for name in QUOTAS} == {"auth off"}
    assert set(origins.values()) == {"default"}


def test_the_efficient_profile_changes_only_its_own_settings() -> None:
    stable, efficient = load_settings({}), load_settings({"LINGUA_PROFILE": "efficient"})
    changed = {
        name: getattr(efficient, name)
        for name in Settings.model_fields
        if getattr(efficient, name) != getattr(stable, name) and name != "instance_id"
    }

    assert changed == {
        "profile": "efficient",
        "sample_k": 40,
        "reservation_ttl_ms": 3000,
        "ack_timeout_ms": 500,
        "max_retry": 3,
        "queue_wait_ms": 500,
        "hedge_after_ms": 250,
    }


def test_the_environment_overrides_the_profile_and_origins_tell_them_apart() -> None:
    settings = load_settings({"LINGUA_PROFILE": "efficient", "LINGUA_SAMPLE_K": "40"})
    origins = settings.origins()

    assert settings.sample_k == 40
    assert origins["sample_k"] == "environment"
    assert origins["max_retry"] == "profile efficient"
    assert origins["pool_size"] == "default"


def test_tenants_have_limits_by_default_if_auth_is_on() -> None:
    def limits(**variables: str) -> list[tuple[int, str]]:
        settings = load_settings({f"LINGUA_{name.upper()}": v for name, v in variables.items()})
        return [(getattr(settings, name), settings.origin(name)) for name in QUOTAS]

    assert limits() == limits(auth="off") == [(0, "auth off")] * 4
    assert limits(auth=" ON ") == [
        (200, "default"),
        (200, "default"),
        (12_000, "default"),
        (50, "default"),
    ]
    # An operator may still have none with auth on, and some with auth off.
    assert limits(auth="on", quota_sessions="0")[0] == (0, "environment")
    assert limits(quota_sessions="7", quota_jobs="8")[:2] == [
        *((7, "environment"), (8, "environment")),
    ]


def test_without_an_argument_the_environment_of_the_process_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LINGUA_SAMPLE_K", "33")

    assert load_settings().sample_k == 33
    assert load_settings({}).sample_k == 20
    assert Settings().sample_k == 20


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("sample_k", "0", "must be a whole number from 1 to 1000"),
        ("sample_k", "many", "must be a whole number from 1 to 1000"),
        ("sample_k", "", "must be a whole number from 1 to 1000"),
        ("redis_timeout_ms", "5001", "must be a whole number from 10 to 5000"),
        ("load_threshold", "1.01", "must be a number from 0 to 1"),
        ("load_threshold", "nan", "must be a number from 0 to 1"),
        ("profile", "fast", "must be stable or efficient"),
        ("log_level", "loud", "must be debug, info, warning or error"),
        ("timeout_binding", "never", "must be held or always"),
        ("instance_id", "a b", "must be 1 to 128 characters of A-Z a-z 0-9 . _ -, or empty"),
    ],
)
def test_the_error_of_a_bad_value_names_its_variable_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    assert problems(**{name: value}) == [f"LINGUA_{name.upper()}={value!r}: {allowed}"]


def test_all_bad_values_are_reported_together() -> None:
    told = problems(sample_k="0", max_retry="-1", pool_listen="here")

    assert {line.split("=")[0] for line in told} == {
        "LINGUA_SAMPLE_K",
        "LINGUA_MAX_RETRY",
        "LINGUA_POOL_LISTEN",
    }


@pytest.mark.parametrize(
    ("variables", "lesser", "greater"),
    [
        ({"ack_timeout_ms": "5000"}, "ACK_TIMEOUT_MS", "RESERVATION_TTL_MS"),
        ({"hedge_after_ms": "1500"}, "HEDGE_AFTER_MS", "ACK_TIMEOUT_MS"),
        ({"running_lease_ms": "19999"}, "JOB_TIMEOUT_MS", "RUNNING_LEASE_MS"),
        ({"node_heartbeat_ms": "5001"}, "NODE_HEARTBEAT_MS", "HEARTBEAT_STALE_MS"),
        ({"heartbeat_batch_ms": "5001"}, "HEARTBEAT_BATCH_MS", "NODE_HEARTBEAT_MS"),
        ({"eject_max_ms": "29999"}, "EJECT_MS", "EJECT_MAX_MS"),
        ({"node_forget_ms": "14999"}, "HEARTBEAT_STALE_MS", "NODE_FORGET_MS"),
        ({"job_record_ttl_ms": "29999"}, "RUNNING_LEASE_MS", "JOB_RECORD_TTL_MS"),
        ({"result_deadline_ms": "19999"}, "JOB_TIMEOUT_MS", "RESULT_DEADLINE_MS"),
        ({"max_message_bytes": "512000"}, "MAX_LENGTH_BYTES", "MAX_MESSAGE_BYTES"),
        ({"kept_result_ms": "299999"}, "RESUME_WITHIN_MS", "KEPT_RESULT_MS"),
        ({"result_queue_max": "15"}, "SESSION_UTTERANCES_MAX", "RESULT_QUEUE_MAX"),
    ],
)
def test_the_error_of_a_contradiction_names_both_variables(
    variables: dict[str, str], lesser: str, greater: str
) -> None:
    (told,) = problems(**variables)

    assert re.search(
        rf"LINGUA_{lesser}=\d+ \(\w+\) must be .* LINGUA_{greater}=\d+ \(\w+\): ", told
    )


def test_a_contradiction_with_the_profile_says_that_the_profile_set_it() -> None:
    (told,) = problems(profile="efficient", ack_timeout_ms="200")

    assert "LINGUA_HEDGE_AFTER_MS=250 (profile efficient)" in told
    assert "LINGUA_ACK_TIMEOUT_MS=200 (environment)" in told


@pytest.mark.parametrize("address", ["127.0.0.1:7710", "[::1]:0", "pool.example:65535"])
def test_valid_addresses_to_listen_on_are_accepted(address: str) -> None:
    assert load_settings({"LINGUA_POOL_LISTEN": address}).pool_listen == address


@pytest.mark.parametrize("address", ["", "7710", ":7710", "h:", "h:65536", "::1:7710", "h:1:2"])
def test_invalid_addresses_to_listen_on_are_refused(address: str) -> None:
    assert len(problems(pool_listen=address)) == 1


def test_metrics_can_be_off_but_a_service_must_listen() -> None:
    assert load_settings({"LINGUA_POOL_METRICS_LISTEN": ""}).pool_metrics_listen == ""
    assert problems(pool_listen="")


def test_clients_may_name_all_replicas_behind_a_name_but_not_port_0() -> None:
    target = "dns:///pool.lingua.svc:7710"

    assert load_settings({"LINGUA_POOL_ADDRESS": target}).pool_address == target
    assert problems(pool_address="127.0.0.1:0")


@pytest.mark.parametrize("prefix", ["lingua:v1", "lingua:v1:{c7}", "{c7}", "a-b_c.d"])
def test_valid_redis_prefixes_are_accepted(prefix: str) -> None:
    assert load_settings({"LINGUA_REDIS_PREFIX": prefix}).redis_prefix == prefix


@pytest.mark.parametrize("prefix", ["", "a:", "a b", "{a}{b}", "{}", "{a", "a}", "a*", "x" * 101])
def test_invalid_redis_prefixes_are_refused(prefix: str) -> None:
    assert len(problems(redis_prefix=prefix)) == 1


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redis://h",
        "rediss://u:p@h:6380/1",
        "unix:///tmp/r.sock",
        "redis+sentinel://a:26379,b:26379/main/0",
        "rediss+cluster://a:7000,b:7001",
    ],
)
def test_valid_redis_urls_are_accepted(url: str) -> None:
    assert load_settings({"LINGUA_REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize("url", ["h:6379", "http://h", "redis://", "redis://h:99999", "unix://"])
def test_invalid_redis_urls_are_refused(url: str) -> None:
    assert len(problems(redis_url=url)) == 1


def test_an_instance_without_a_name_gets_a_unique_one() -> None:
    first, second = load_settings({}), load_settings({"LINGUA_INSTANCE_ID": ""})

    assert re.fullmatch(r"[A-Za-z0-9._-]+-\d+-[0-9a-f]{4}", first.instance_id)
    assert first.instance_id != second.instance_id
    assert load_settings({"LINGUA_INSTANCE_ID": "pool-0"}).instance_id == "pool-0"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        load_settings({}).sample_k = 3  # type: ignore[misc]


def test_a_setting_that_does_not_exist_cannot_be_given() -> None:
    with pytest.raises(SettingsError, match="sampel_k: no such setting"):
        Settings(sampel_k=3)


def test_misspelt_variables_are_reported_with_the_nearest_real_one() -> None:
    environ = {"LINGUA_SAMPEL_K": "1", "LINGUA_QQQ": "1", "LINGUA_SAMPLE_K": "1", "PATH": "x"}

    assert unknown_variables(environ) == [
        ("LINGUA_QQQ", ""),
        ("LINGUA_SAMPEL_K", "LINGUA_SAMPLE_K"),
    ]


def test_variables_of_kubernetes_services_are_not_reported() -> None:
    environ = {
        "LINGUA_POOL_SERVICE_HOST": "10.0.0.1",
        "LINGUA_POOL_SERVICE_PORT_GRPC": "7710",
        "LINGUA_POOL_PORT": "tcp://10.0.0.1:7710",
        "LINGUA_POOL_PORT_7710_TCP_ADDR": "10.0.0.1",
    }

    assert unknown_variables(environ) == []
    assert unknown_variables({"LINGUA_POOL_PORT": "7710"}) != []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://:secret@h", "redis://:***@h"),
        ("redis://me:se:c@ret@h", "redis://me:***@h"),
        ("redis://secret@h", "redis://***@h"),
        ("me:secret@h", "me:***@h"),
        ("redis://me:a://secret@h", "redis://me:***@h"),
        ("redis://h?password=secret&db=1", "redis://h?password=***&db=1"),
    ],
)
def test_a_password_is_masked_wherever_it_is_in_the_url(url: str, shown: str) -> None:
    assert masked_url(url) == shown


@given(st.text("abc:@/?", max_size=12))
def test_no_text_made_from_the_settings_shows_a_password(rest: str) -> None:
    url = f"redis://me:pa55{rest}word@h"
    try:
        settings = load_settings({"LINGUA_REDIS_URL": url})
        texts = [repr(settings), *(row.value for row in settings.rows())]
    except SettingsError as error:
        texts = traceback.format_exception(error)

    assert all("pa55" not in text for text in texts)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("LINGUA_WEB_HOSTS", "talk.example:443"),
        ("LINGUA_WEB_HOSTS", "http://talk.example"),
        ("LINGUA_WEB_HOSTS", "a b"),
        ("LINGUA_WEB_ORIGINS", "talk.example"),
        ("LINGUA_WEB_ORIGINS", "https://talk.example/"),
        ("LINGUA_WEB_ORIGINS", "https://talk.example:99999"),
        ("LINGUA_WEB_ORIGINS", "ftp://talk.example"),
        ("LINGUA_WEB_ORIGINS", "null"),
    ],
)
def test_hosts_and_origins_of_the_web_are_checked(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        load_settings({variable: value})


def test_hosts_and_origins_of_the_web_are_lists() -> None:
    settings = load_settings(
        {
            "LINGUA_WEB_HOSTS": "talk.example,other.example",
            "LINGUA_WEB_ORIGINS": "https://talk.example,http://localhost:5173",
        }
    )
    assert settings.web_hosts == "talk.example,other.example"
    assert load_settings({"LINGUA_WEB_HOSTS": "*", "LINGUA_WEB_ORIGINS": "*"}).web_origins == "*"


def test_rows_cover_every_setting_group_by_group_with_a_description() -> None:
    rows = list(load_settings({}).rows())
    groups = [row.group for row in rows]

    assert {row.name for row in rows} == set(Settings.model_fields)
    assert list(dict.fromkeys(groups)) == [
        "general",
        "redis",
        "addresses",
        "grpc",
        "security",
        "quotas",
        "owners",
        "pool",
        "dispatcher",
        "gateway",
        "rooms",
        "web",
        "console",
    ]
    assert groups == sorted(groups, key=list(dict.fromkeys(groups)).index)
    assert all(row.description and row.variable == f"LINGUA_{row.name.upper()}" for row in rows)
    assert all("ms" in row.description.split() for row in rows if row.name.endswith("_ms"))


def test_the_services_of_a_process_have_ids_of_their_own() -> None:
    assert extended_id("box", "pool") == "box-pool"
    longest = "x" * 128
    # As `lingua up --instances 64` names its processes, and each process its services.
    ids = {
        extended_id(extended_id(longest, str(number)), service)
        for number in range(1, 65)
        for service in ("pool", "dispatcher", "gateway")
    }
    assert len(ids) == 64 * 3
    for each in ids:
        assert load_settings({"LINGUA_INSTANCE_ID": each}).instance_id == each
