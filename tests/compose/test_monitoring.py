"""Prometheus and Grafana of compose.yaml find our services, rules and dashboards."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.compose.compose_file import OURS, ROOT, SERVICES, mounts, published


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


PROMETHEUS = read("monitoring/compose/prometheus.yml")


def test_prometheus_reads_every_service_by_the_jobs_of_the_sample() -> None:
    sample = read("monitoring/prometheus.yml")
    jobs = [each["job_name"] for each in PROMETHEUS["scrape_configs"]]
    assert jobs == [each["job_name"] for each in sample["scrape_configs"]]
    assert PROMETHEUS["global"] == sample["global"]
    for each in PROMETHEUS["scrape_configs"]:
        (found,) = each["dns_sd_configs"]
        (name,) = found["names"]
        assert each["job_name"] == f"lingua-{name}"
        settings = load_settings(OURS[name]["environment"])
        assert found["port"] == split_address(getattr(settings, f"{name}_metrics_listen"))[1]
        # Of a name of a container engine there are only addresses.
        assert found["type"] == "A"


def test_prometheus_accepts_its_configuration_and_our_rules(tmp_path: Path) -> None:
    for inside, (source, _) in mounts("prometheus").items():
        if source.startswith("."):
            shutil.copy(ROOT / source, tmp_path / Path(inside).name)
    assert {each.name for each in tmp_path.iterdir()} == {"prometheus.yml", "alerts.yml"}
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on the PATH: install Prometheus")
    command = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # It found the rules, too.
    assert "rules found" in ran.stdout


def test_grafana_has_prometheus_as_the_data_source_of_the_dashboards() -> None:
    (source,) = read("monitoring/compose/datasource.yml")["datasources"]
    url = urlsplit(source["url"])
    assert source["type"] == "prometheus"
    # The dashboards choose the default one.
    assert source["isDefault"] is True
    ((_, port),) = published("prometheus")
    assert (url.hostname, url.port) == ("prometheus", port)
    assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]


def test_grafana_finds_our_dashboards_and_opens_the_overview() -> None:
    (provider,) = read("monitoring/compose/dashboards.yml")["providers"]
    folder, _ = mounts("grafana")[provider["options"]["path"]]
    boards = {each.name: json.loads(each.read_text()) for each in (ROOT / folder).glob("*.json")}
    assert {"overview.json", "pool.json", "dispatcher.json", "gateway.json"} <= boards.keys()
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert boards[home.name]["uid"] == "lingua-overview"


def test_grafana_reads_its_provisioning_where_its_image_looks() -> None:
    looks = {Path(each).parent.name for each in mounts("grafana") if "provisioning" in each}
    assert looks == {"datasources", "dashboards"}


def test_nobody_can_sign_in_to_grafana_and_visitors_only_look() -> None:
    environ = SERVICES["grafana"]["environment"]
    assert environ["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environ["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_the_console_links_to_grafana() -> None:
    url = load_settings(OURS["console"]["environment"]).console_grafana_url
    ((_, port),) = published("grafana")
    assert url == f"http://localhost:{port}/"
