"""What compose.yaml says is valid, and agrees with the code and the rest of the project."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.up.local_scheduler import STOP_SLACK_S
from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.settings.settings import (
    Settings,
    load_settings,
    unknown_variables,
)
from tests.compose.compose_file import (
    COMPOSE,
    FILE,
    GUIDE,
    OURS,
    ROOT,
    SERVICES,
    mounts,
    published,
    shown_in_guide,
)

WITH_REDIS = ("pool", "dispatcher", "gateway")
PROCESSES = (*WITH_REDIS, "console")
DEFAULTS = Settings()


def follows_the_schema(file: Path) -> bool:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    ran = subprocess.run([*command, str(file)], capture_output=True, text=True)
    assert ran.returncode == 0 or "Schema validation errors" in ran.stdout, ran.stdout + ran.stderr
    return ran.returncode == 0


def test_it_follows_the_schema_of_compose_files(tmp_path: Path) -> None:
    assert follows_the_schema(FILE)
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(FILE.read_text().replace("read_only:", "readonly:"))
    assert not follows_the_schema(wrong)


def test_what_the_guide_shows_follows_the_schema_and_names_our_services(tmp_path: Path) -> None:
    shown = shown_in_guide()
    assert shown
    for each in shown:
        assert each["services"].keys() <= SERVICES.keys()
        file = tmp_path / "compose.yaml"
        file.write_text(yaml.safe_dump(each))
        assert follows_the_schema(file)


# ---- images ----


def test_our_image_is_that_of_this_version_and_is_built_once() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {each["image"] for each in OURS.values()} == {f"lingua-scheduler:{version}"}
    # Several builds of one tag at a time disturb each other.
    assert [name for name, each in SERVICES.items() if "build" in each] == ["pool"]


def test_every_other_image_is_pinned() -> None:
    for name in SERVICES.keys() - OURS.keys():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"]), name


def test_redis_is_of_the_series_that_the_manifests_use() -> None:
    manifest = (ROOT / "k8s" / "overlays" / "dev" / "redis.yaml").read_text()
    (image,) = re.findall(r"image: (valkey\S+)", manifest)
    assert SERVICES["redis"]["image"].startswith(f"{image}.")


# ---- what a container may ----


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_is_restricted_and_restarted(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges"]
    assert service["restart"] == "unless-stopped"
    assert not service.keys() & {"privileged", "cap_add", "devices", "network_mode", "pid"}
    if name in OURS:
        # The user is that of the image; tests/k8s checks it.
        assert "user" not in service
    else:
        assert int(service["user"].partition(":")[0]) > 0


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    assert {host for host, _ in published(name)} <= {"127.0.0.1"}


def test_only_ports_that_people_use_are_published() -> None:
    assert {(name, port) for name in SERVICES for _, port in published(name)} == {
        ("dispatcher", 7720),
        ("gateway", 7730),
        ("gateway", 7740),
        ("console", 7750),
        ("prometheus", 9090),
        ("grafana", 3000),
    }


def test_only_those_who_use_redis_can_reach_it() -> None:
    reach = {name for name, each in SERVICES.items() if "redis" in each.get("networks", [])}
    assert reach == {"redis", *WITH_REDIS}
    assert SERVICES["redis"]["networks"] == ["redis"]
    # podman-compose knows only networks that are declared.
    assert COMPOSE["networks"].keys() == {"default", "redis"}


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_is_there_and_only_volumes_can_be_written(name: str) -> None:
    for source, options in mounts(name).values():
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            # With SELinux, a container reads only files with its label.
            assert options == {"ro", "z"}
        else:
            assert source in COMPOSE["volumes"]


# ---- settings ----


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting_with_a_valid_value(name: str) -> None:
    environ = OURS[name]["environment"]
    assert all(isinstance(value, str) for value in environ.values())
    assert unknown_variables(environ) == []
    assert bool(load_settings(environ).redis_url) == (name in WITH_REDIS)


@pytest.mark.parametrize("name", PROCESSES)
def test_every_service_listens_for_others_on_the_ports_of_the_defaults(name: str) -> None:
    settings = load_settings(OURS[name]["environment"])
    listens = [f"{name}_listen", f"{name}_metrics_listen"]
    if name == "gateway":
        listens.append("gateway_web_listen")
    for each in listens:
        host, port = split_address(getattr(settings, each))
        assert (host, port) == ("0.0.0.0", split_address(getattr(DEFAULTS, each))[1])
    # Only the health check of its own container asks there.
    assert split_address(getattr(settings, f"{name}_health_listen"))[0] == "127.0.0.1"


@pytest.mark.parametrize("name", OURS)
def test_every_service_is_found_by_its_name(name: str) -> None:
    settings = load_settings(OURS[name]["environment"])
    for service in WITH_REDIS:
        _, port = split_address(getattr(DEFAULTS, f"{service}_listen"))
        assert getattr(settings, f"{service}_address") == f"dns:///{service}:{port}"


@pytest.mark.parametrize("name", OURS)
def test_every_container_runs_a_real_command(name: str) -> None:
    command = OURS[name]["command"]
    assert command == (["serve", name] if name in PROCESSES else ["sample-node", "--id", name])
    ran = CliRunner().invoke(app, [*command, "--help"])
    assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize("name", WITH_REDIS)
def test_a_service_has_time_to_drain_and_to_end(name: str) -> None:
    settings = load_settings(OURS[name]["environment"])
    seconds = float(OURS[name]["stop_grace_period"].removesuffix("s"))
    assert seconds > settings.drain_grace_ms / 1000 + STOP_SLACK_S


@pytest.mark.parametrize("name", [each for each in SERVICES if "sample" not in each])
def test_every_server_has_a_health_check_without_a_shell(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"


def test_the_health_check_is_a_real_command() -> None:
    for name in PROCESSES:
        _, lingua, *args = OURS[name]["healthcheck"]["test"]
        assert lingua == "lingua"
        assert CliRunner().invoke(app, [*args, "--help"]).exit_code == 0


def test_redis_keeps_what_it_has_and_evicts_nothing() -> None:
    server, *said = SERVICES["redis"]["command"]
    options = dict(zip(said[::2], said[1::2], strict=True))
    assert server == "valkey-server"
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert mounts("redis")[options["--dir"]] == ("redis", set())
    for name in WITH_REDIS:
        assert OURS[name]["depends_on"]["redis"] == {"condition": "service_healthy"}
        assert load_settings(OURS[name]["environment"]).redis_url == "redis://redis:6379/0"


# ---- the guide ----


def test_the_guide_has_every_variable_of_the_file() -> None:
    for name in re.findall(r"\$\{(\w+)-", FILE.read_text()):
        assert f"`{name}`" in GUIDE, name


def test_with_what_the_guide_shows_every_container_asks_who_calls() -> None:
    (shown,) = (each for each in shown_in_guide() if "secrets" in each)
    assert shown["services"].keys() == OURS.keys()
    for name, more in shown["services"].items():
        settings = load_settings({**OURS[name]["environment"], **more["environment"]})
        assert settings.auth == "on"
        (secret,) = more["secrets"]
        assert settings.auth_secret_file == f"/run/secrets/{secret}"
        assert secret in shown["secrets"]
