"""docs/api.md has all of the contracts, and its links lead somewhere. Lint holds that it is new."""

import re
from pathlib import Path

from google.protobuf.descriptor import Descriptor

from lingua_scheduler.services.runtime.auth.access import ROLES
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2, session_pb2

MODULES = (common_pb2, dispatcher_pb2, pool_pb2, session_pb2)
PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
HEADINGS = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)


def part_of(heading: str) -> str:
    """What the page says under a heading."""
    _, found, after = PAGE.partition(f"# {heading}\n")
    assert found, f"no heading {heading}"
    return after.partition("\n#")[0]


def test_every_link_leads_to_a_heading_and_no_two_headings_are_alike() -> None:
    anchors = [re.sub(r"[^a-z0-9 _-]", "", each.lower()).replace(" ", "-") for each in HEADINGS]
    assert len(set(anchors)) == len(anchors)
    assert set(re.findall(r"\]\(#(.+?)\)", PAGE)) <= set(anchors)


def test_every_method_says_what_it_takes_and_who_may_call_it() -> None:
    for module in MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                part = part_of(f"{service.name}.{method.name}")
                roles = ", ".join(sorted(ROLES[f"{service.full_name}/{method.name}"]))
                assert f"Roles: {roles}." in part
                assert f"[{method.input_type.name}]" in part
                assert f"[{method.output_type.name}]" in part


def test_every_field_and_value_is_listed() -> None:
    for module in MODULES:
        for message in module.DESCRIPTOR.message_types_by_name.values():
            check_message(message)
        for enum in module.DESCRIPTOR.enum_types_by_name.values():
            assert all(
                f"`{each.name}` = {each.number}" in part_of(enum.name) for each in enum.values
            )


def check_message(message: Descriptor) -> None:
    """All its fields are there, and its own enums with their values."""
    part = part_of(message.name)
    assert all(f"`{field.name}` = {field.number} |" in part for field in message.fields)
    for enum in message.enum_types:
        part = part_of(f"{message.name}.{enum.name}")
        assert all(f"`{each.name}` = {each.number}" in part for each in enum.values)


def test_what_is_said_to_the_linter_of_protos_is_left_out() -> None:
    assert "buf:lint" not in PAGE
    assert "Named as the project names it" not in PAGE
