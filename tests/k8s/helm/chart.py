"""The chart of k8s/chart as Helm renders it."""

import base64
import copy
import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.manifests import ROOT, Manifests, Resource, name_of

CHART = ROOT / "k8s" / "chart"
HELM = Path(sys.executable).with_name("helm")

# The values that give what each layer of kustomize gives, and the layer's namespace.
LAYERS: dict[str, tuple[tuple[str, ...], str]] = {
    "base": ((), "lingua"),
    "overlays/dev": (("dev.yaml",), "lingua-dev"),
    "overlays/production": (("production.yaml",), "lingua"),
    "overlays/small": (("production.yaml", "small.yaml"), "lingua"),
}

# Helm says so once for the folder monitoring, which is a link: its files have one place.
_NOTICE = re.compile(r"^walk\.go:\d+: found symbolic link in path: .*/monitoring\.? .*\n", re.M)


class HelmError(Exception):
    """What Helm said when it refused."""


def helm(*args: str | Path, stdin: str = "") -> str:
    """The output of a command of Helm.

    Raises:
        HelmError: it failed.
    """
    if not HELM.exists():
        pytest.skip("no Helm for this system: the package helm-binary is for Linux")
    done = subprocess.run(
        [HELM, *args], capture_output=True, text=True, input=stdin, check=False, cwd=CHART
    )
    said = _NOTICE.sub("", done.stderr)
    if done.returncode:
        raise HelmError(said + done.stdout)
    assert not said, said
    return done.stdout


def values_of(layer: str) -> list[str]:
    """The options by which a user gives Helm the values of a layer."""
    files, _ = LAYERS[layer]
    return [option for name in files for option in ("--values", f"values/{name}")]


@functools.cache
def rendered(layer: str, more: str = "{}") -> Manifests:
    """The chart with the values of a layer, and more values after them, as JSON."""
    _, namespace = LAYERS[layer]
    text = helm(
        *("template", "lingua", CHART, "--namespace", namespace),
        *(*values_of(layer), "--values", "-"),
        stdin=more,
    )
    return Manifests(layer, [each for each in yaml.safe_load_all(text) if each])


def with_values(layer: str = "base", **values: Any) -> Manifests:
    """The chart with the values of a layer and these."""
    return rendered(layer, json.dumps(values))


def is_hook(resource: Resource) -> bool:
    """Whether Helm creates it only for `helm test`."""
    return "helm.sh/hook" in resource["metadata"].get("annotations", {})


def normal(manifests: Manifests) -> dict[str, Resource]:
    """The objects by kind and name, without what Helm and kustomize must do differently.

    - The namespace: Helm creates it itself, if at all.
    - Labels of objects, of which each tool has its own; those of pods are kept.
    - A changed setting restarts pods: by a hash in the name of the ConfigMap, or a checksum in an
      annotation of the pods.
    - Secrets: as data, or as strings.
    - Line breaks in long strings, such as queries.
    """
    found = {}
    for each in manifests.resources:
        if each["kind"] == "Namespace" or is_hook(each):
            continue
        resource = copy.deepcopy(each)
        resource["metadata"].pop("labels", None)
        resource["metadata"]["name"] = _without_hash(name_of(resource))
        pod = resource.get("spec", {}).get("template")
        if pod:
            annotations = pod["metadata"].pop("annotations", {})
            assert annotations.keys() <= {"checksum/settings"}
        if resource["kind"] == "Secret":
            data = resource.pop("data", {})
            decoded = {key: base64.b64decode(value).decode() for key, value in data.items()}
            resource.setdefault("stringData", decoded)
            resource.setdefault("type", "Opaque")
        key = f"{resource['kind']} {name_of(resource)}"
        assert key not in found, f"{key} twice"
        leaves = list(_leaves(resource))
        found[key] = dict(leaves)
        assert len(found[key]) == len(leaves), f"{key} has something twice"
    return found


def differences(chart: Manifests, kustomize: Manifests) -> list[str]:
    """Every field in which they differ."""
    found = []
    ours, theirs = normal(chart), normal(kustomize)
    for key in sorted(ours.keys() | theirs.keys()):
        if key not in ours or key not in theirs:
            found.append(f"{key} is only in {'the chart' if key in ours else 'kustomize'}")
            continue
        for path in sorted(ours[key].keys() | theirs[key].keys()):
            values = tuple(each[key].get(path, "nothing") for each in (ours, theirs))
            if values[0] != values[1]:
                found.append(
                    f"{key} {path}: {values[0]!r} in the chart, {values[1]!r} in kustomize"
                )
    return found


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """What is in a document, by its path, so that a difference says where it is."""
    if isinstance(value, dict) and value:
        for key, held in value.items():
            yield from _leaves(held, f"{path}/{key}")
    elif isinstance(value, list) and value:
        # What has a name is found by it; kustomize changes the order when it merges.
        for at, held in enumerate(value):
            named = isinstance(held, dict) and "name" in held
            yield from _leaves(held, f"{path}[{held['name'] if named else at}]")
    elif isinstance(value, str):
        yield path, re.sub(r"\s+", " ", _without_hash(value)).strip()
    else:
        yield path, value


def _without_hash(name: str) -> str:
    return re.sub(r"^(lingua-settings|lingua-redis)-[a-z0-9]{10}$", r"\1", name)
