"""Whether a resource is what the API server of a cluster would accept, at the strictest."""

import functools
import json
from pathlib import Path

import jsonschema
import kubernetes_validate

from tests.k8s.manifests import Resource

# From the first version that has all that is used (a preStop that sleeps) to the newest.
VERSIONS = ("1.30", kubernetes_validate.latest_version())

_SCHEMAS = Path(__file__).with_name("schemas")
# Newer than the schemas; ingress.yaml says so, too.
_NEWER = ("timeout", "http", "streamIdleTimeout")


class InvalidError(Exception):
    """The resource is not valid."""


def validate(resource: Resource, version: str) -> None:
    """Validates a resource of Kubernetes against its version, and a custom one against its schema.

    Raises:
        InvalidError: it has a field that does not exist, lacks one, or one has the wrong type.
    """
    found = _problem(json.dumps(resource), version)
    if found:
        raise InvalidError(f"{resource['kind']} {resource['metadata']['name']}: {found}")


# Layers have much in common, and to check an object takes a tenth of a second.
@functools.cache
def _problem(text: str, version: str) -> str:
    resource: Resource = json.loads(text)
    if not _is_of_kubernetes(resource):
        found = next(_schema(resource["kind"]).iter_errors(_known(resource)), None)
        return f"{found.json_path}: {found.message}" if found is not None else ""
    try:
        kubernetes_validate.validate(resource, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error)
    return ""


def _is_of_kubernetes(resource: Resource) -> bool:
    group = resource["apiVersion"].partition("/")[0]
    return "." not in group or group in ("networking.k8s.io", "rbac.authorization.k8s.io")


@functools.cache
def _schema(kind: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((_SCHEMAS / f"{kind}.json").read_text()))


def _known(resource: Resource) -> Resource:
    """Its specification, without the field that is newer than the schemas."""
    spec: Resource = resource["spec"]
    if resource["kind"] == "BackendTrafficPolicy":
        *path, field = _NEWER
        within = functools.reduce(lambda held, key: held.get(key, {}), path, spec)
        within.pop(field, None)
    return spec
