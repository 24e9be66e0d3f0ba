"""docs/api.md, from protos/ and the table of roles."""

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import grpc_tools  # type: ignore[import-untyped]
from google.protobuf import descriptor_pb2 as pb
from grpc_tools import protoc  # type: ignore[import-untyped]

from lingua_scheduler.services.runtime.auth.access import ROLES
from lingua_scheduler.services.runtime.contract.text_formats import TEXT_FORMATS
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.v1 import limits_pb2
from lingua_scheduler.v1.common_pb2 import ErrorReason
from tools.reference.markdown import row, slug

ROOT = Path(__file__).parents[2]
PACKAGE = "lingua_scheduler.v1"

# What apps use, what nodes use, what lies behind, what all speak of, what no caller sees.
ORDER = (
    "session",
    "rooms",
    "dispatcher",
    "pool",
    "instances",
    "common",
    "session_record",
    "limits",
)

HEAD = """\
# API

<!-- Made by `make reference` from protos/ and services/runtime/auth/access.py: edit those. -->

All names are in the proto package `lingua_scheduler.v1` (`protos/lingua_scheduler/v1`). The roles
that may call a method count once auth is on: [security.md](security.md). Besides these, every
server has the standard services `grpc.health.v1.Health`, open to all, and reflection.

Limits are enforced where a message enters a service: a request beyond one fails with
`INVALID_MESSAGE`, which names the field. On a stream only the entry that is over a limit fails.
"""

LINT = "buf:lint:ignore"
# A name of two words or more, or of one within a sentence: "Result" there is the message.
NAME = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|(?<=[a-z,] )[A-Z][a-z]+\b|\b[A-Z][A-Z_]+\b")
TYPES = pb.FieldDescriptorProto.Type


class Comments:
    """What stands above each thing in one file."""

    def __init__(self, file: pb.FileDescriptorProto) -> None:
        self._found = {
            tuple(each.path): each.leading_comments for each in file.source_code_info.location
        }

    def of(self, *path: int) -> str:
        """Its comment, one line a paragraph."""
        return "\n\n".join(paragraphs(self._found.get(path, "")))


def paragraphs(comment: str) -> Iterator[str]:
    """The comment without its line breaks, and without what it says to the linter."""
    lines = [line.strip() for line in comment.strip().splitlines()]
    # The line before is the reason of the exception.
    kept = [
        line
        for at, line in enumerate(lines)
        if LINT not in line and not any(LINT in after for after in lines[at + 1 : at + 2])
    ]
    text = ""
    for line in kept:
        if text and (line == "" or line.startswith(("- ", "Errors: ", "Retry: "))):
            yield text
            text = ""
        text = f"{text} {line}".strip()
    if text:
        yield text


class Page:
    """The page as it is written, line by line."""

    def __init__(self, files: Sequence[pb.FileDescriptorProto]) -> None:
        self._files = files
        self._names = {name for file in files for name in names_of(file)}
        self._reasons = {
            value.name.removeprefix("ERROR_REASON_")
            for file in files
            for enum in file.enum_type
            if enum.name == "ErrorReason"
            for value in enum.value
        }

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield HEAD
        for file in self._files:
            yield from self._contents(file)
        for file in self._files:
            yield from self._file(file)

    def _contents(self, file: pb.FileDescriptorProto) -> Iterator[str]:
        if file.service:
            for service in file.service:
                yield f"- {link(service.name)}: " + ", ".join(
                    link(f"{service.name}.{method.name}", method.name) for method in service.method
                )
        else:
            yield f"- [{title(file)}](#{slug(title(file))})"

    def _file(self, file: pb.FileDescriptorProto) -> Iterator[str]:
        comments = Comments(file)
        for at, service in enumerate(file.service):
            yield from ("", f"## {service.name}", "", self._linked(comments.of(6, at)))
            for number, method in enumerate(service.method):
                yield from self._method(service, method, comments.of(6, at, 2, number))
        if not file.service:
            # The comment of a file stands above its package.
            yield from ("", f"## {title(file)}", "", self._linked(comments.of(2)))
        for service in file.service:
            yield from ("", f"### Messages of {service.name}")
        for at, message in enumerate(file.message_type):
            yield from self._message(comments, (4, at), message, message.name)
        for at, enum in enumerate(file.enum_type):
            yield from self._enum(comments, (5, at), enum, enum.name)

    def _method(
        self, service: pb.ServiceDescriptorProto, method: pb.MethodDescriptorProto, comment: str
    ) -> Iterator[str]:
        name = f"{service.name}.{method.name}"
        asks, answers = (
            f"{'stream ' if streams else ''}{link(short(kind))}"
            for streams, kind in (
                (method.client_streaming, method.input_type),
                (method.server_streaming, method.output_type),
            )
        )
        yield from ("", f"### {name}", "", f"{asks} → {answers}")
        roles = sorted(ROLES.get(f"{PACKAGE}.{service.name}/{method.name}", ()))
        yield from ("", f"Roles: {', '.join(roles) or 'none'}.")
        if comment:
            yield from ("", self._linked(comment))

    def _message(
        self, comments: Comments, path: tuple[int, ...], message: pb.DescriptorProto, name: str
    ) -> Iterator[str]:
        yield from ("", f"#### {name}")
        if comment := comments.of(*path):
            yield from ("", self._linked(comment))
        if not message.field:
            yield from ("", "Has no fields.")
        else:
            yield from ("", "| field | type | |", "|---|---|---|")
        maps = {each.name: each for each in message.nested_type if each.options.map_entry}
        fields = enumerate(message.field)
        for oneof, group in groupby(fields, lambda each: oneof_of(message, each[1])):
            if oneof:
                yield row("one of:", f"*{oneof}*", "")
            for at, field in group:
                name_of = f"{'· ' if oneof else ''}`{field.name}` = {field.number}"
                says = [self._linked(comments.of(*path, 2, at)), limit_text(field)]
                yield row(name_of, type_of(field, maps), " ".join(filter(None, says)))
        for at, enum in enumerate(message.enum_type):
            yield from self._enum(comments, (*path, 4, at), enum, f"{name}.{enum.name}")

    def _enum(
        self, comments: Comments, path: tuple[int, ...], enum: pb.EnumDescriptorProto, name: str
    ) -> Iterator[str]:
        yield from ("", f"#### {name}")
        if comment := comments.of(*path):
            yield from ("", self._linked(comment))
        yield from ("", "| value | |", "|---|---|")
        for at, value in enumerate(enum.value):
            says = [self._linked(comments.of(*path, 2, at)), status_of(value.name)]
            yield row(f"`{value.name}` = {value.number}", " ".join(filter(None, says)))

    def _linked(self, text: str) -> str:
        def linked(found: re.Match[str]) -> str:
            if found[0] in self._reasons:
                return link("ErrorReason", f"`{found[0]}`")
            return link(found[0]) if found[0] in self._names else found[0]

        return NAME.sub(linked, text.replace("|", "\\|").replace("<", "&lt;"))


def status_of(reason: str) -> str:
    """With which gRPC status a call fails that fails for this; "" for what is no reason."""
    codes = {ErrorReason.Name(each.reason): each.code for each in LinguaError.__subclasses__()}
    return f"Status: `{codes[reason].name}`." if reason in codes else ""


def names_of(file: pb.FileDescriptorProto) -> Iterator[str]:
    """Of its messages and enums."""
    yield from (each.name for each in file.message_type)
    yield from (each.name for each in file.enum_type)


def title(file: pb.FileDescriptorProto) -> str:
    """Such as "Session record"."""
    return Path(file.name).stem.replace("_", " ").capitalize()


def short(name: str) -> str:
    """A type without its package."""
    return name.removeprefix(f".{PACKAGE}.")


def link(name: str, text: str = "") -> str:
    """To the heading of that name."""
    return f"[{text or name}](#{slug(name)})"


def oneof_of(message: pb.DescriptorProto, field: pb.FieldDescriptorProto) -> str:
    """The oneof that a field is in, else ""."""
    return message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""


def type_of(field: pb.FieldDescriptorProto, maps: dict[str, pb.DescriptorProto]) -> str:
    """Such as `repeated [Node](#node)`."""
    entry = maps.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        return f"map of {type_of(entry.field[0], {})} to {type_of(entry.field[1], {})}"
    if field.type_name:
        kind = link(short(field.type_name))
    else:
        kind = TYPES.Name(field.type).removeprefix("TYPE_").lower()
    return f"repeated {kind}" if field.label == field.LABEL_REPEATED else kind


def limit_text(field: pb.FieldDescriptorProto) -> str:
    """What the field may hold, in words; "" if it declares no limit."""
    limit = field.options.Extensions[limits_pb2.limit]
    entry = "each " if field.label == field.LABEL_REPEATED else ""
    says = ["required"] if limit.required else []
    if limit.max_items:
        says.append(f"at most {limit.max_items} entries")
    if limit.max_chars:
        says.append(f"{entry}at most {limit.max_chars} characters")
    if limit.max_bytes:
        says.append(f"at most {size(limit.max_bytes)}")
    if limit.format:
        says.append(entry + TEXT_FORMATS[limit.format].expected())
    if limit.HasField("min") and limit.HasField("max"):
        says.append(f"{entry}{limit.min:.0f} to {limit.max:.0f}")
    elif limit.HasField("max"):
        says.append(f"{entry}at most {limit.max:.0f}")
    if limit.any_value:
        says.append(f"any value: {limit.any_value[:1].lower()}{limit.any_value[1:].rstrip('.')}")
    return f"*Limit: {'; '.join(says)}.*" if says else ""


def size(count: int) -> str:
    """Such as "64 KiB"."""
    for unit, name in ((1024**2, "MiB"), (1024, "KiB")):
        if count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} bytes"


def descriptors() -> list[pb.FileDescriptorProto]:
    """All files of protos/ with their comments, in the order of the page."""
    paths = sorted(str(each) for each in (ROOT / "protos").rglob("*.proto"))
    with tempfile.NamedTemporaryFile() as out:
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        options = (f"-I{ROOT / 'protos'}", f"-I{well_known}", f"--descriptor_set_out={out.name}")
        if protoc.main(["protoc", *options, "--include_source_info", *paths]) != 0:
            sys.exit("protos/ cannot be read")
        files = pb.FileDescriptorSet.FromString(out.read()).file
    return sorted(files, key=lambda each: ORDER.index(Path(each.name).stem))


def text() -> str:
    """The page."""
    return Page(descriptors()).text()
