"""Writes the settings of the services into the schema of the Helm chart's values.

So Helm refuses a setting that does not exist. `--check` only says whether the schema is current.
"""

import json
import sys
from pathlib import Path
from typing import Any

from lingua_scheduler.services.runtime.settings.settings import PREFIX, Settings

SCHEMA = Path(__file__).parents[1] / "k8s" / "chart" / "values.schema.json"

# Those that the chart sets itself: from Secrets, from other values, or to fit its ports.
_OF_THE_CHART = (
    "_listen",
    "_address",
    "dispatcher_advertise",
    "instance_id",
    "redis_url",
    # Of `lingua up`.
    "redis_dir",
    "auth_secret_file",
    "auth_jwks_file",
    "token_file",
    "tls_cert_file",
    "tls_key_file",
    "tls_client_ca_file",
    "tls_ca_file",
    "tls_client_cert_file",
    "tls_client_key_file",
    "tls_server_name",
    # The PodMonitor scrapes without TLS.
    "metrics_tls",
)
_WHOLE = {"pattern": "^[0-9]+$"}
_FORMS: dict[str, dict[str, Any]] = {
    "integer": _WHOLE,
    "number": {"pattern": r"^[0-9]+(\.[0-9]+)?$"},
    "boolean": {"enum": ["yes", "no"]},
    "string": {},
}


def properties() -> dict[str, Any]:
    """What the schema says of each setting: all are strings, as environment variables are."""
    found = {}
    for name, field in Settings.model_json_schema()["properties"].items():
        if name == "auth" or name.endswith(_OF_THE_CHART):
            continue
        form = {"enum": field["enum"]} if "enum" in field else _FORMS[field["type"]]
        found[PREFIX + name.upper()] = {
            "type": "string",
            **form,
            "description": f"{field['description']}; {field['allowed']}",
        }
    return dict(sorted(found.items()))


def written(schema: str) -> str:
    """The schema with the present settings."""
    document = json.loads(schema)
    document["definitions"]["settings"]["properties"] = properties()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Writes the schema, or with --check exits with 1 if that would change it."""
    before = SCHEMA.read_text()
    after = written(before)
    if "--check" not in sys.argv:
        SCHEMA.write_text(after)
    elif after != before:
        print(f"{SCHEMA.name} has other settings: run 'make chart'", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
