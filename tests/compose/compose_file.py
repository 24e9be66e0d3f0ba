"""compose.yaml as an engine reads it."""

import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "compose.yaml"
GUIDE = (ROOT / "docs" / "compose.md").read_text()

Service = dict[str, Any]


def filled_in(text: str) -> str:
    """With the defaults of its variables, all of them ${NAME-default} or ${NAME:-default}."""
    return re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text)


COMPOSE: dict[str, Any] = yaml.safe_load(filled_in(FILE.read_text()))
SERVICES: dict[str, Service] = COMPOSE["services"]
OURS = {name: each for name, each in SERVICES.items() if "lingua" in each["image"]}
"""The containers of our image."""


def mounts(service: str) -> dict[str, tuple[str, set[str]]]:
    """What a container mounts: by the path in it, the source, and the options."""
    found = {}
    for each in SERVICES[service].get("volumes", []):
        source, target, *options = each.split(":")
        found[target] = source, set(",".join(options).split(",")) - {""}
    return found


def published(service: str) -> list[tuple[str, int]]:
    """The address and the port of the container of each published port."""
    found = []
    for each in SERVICES[service].get("ports", []):
        host, _, inside = each.rsplit(":", 2)
        found.append((host, int(inside)))
    return found


def shown_in_guide() -> list[dict[str, Any]]:
    """The compose files of the guide."""
    blocks = re.findall(r"^( *)```yaml\n(.*?)^\1```", GUIDE, re.MULTILINE | re.DOTALL)
    return [yaml.safe_load(textwrap.dedent(each)) for _, each in blocks]
