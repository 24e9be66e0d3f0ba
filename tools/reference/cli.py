"""docs/reference/cli.md, from the commands of click."""

import inspect
import re
from collections.abc import Iterator

import click

from lingua_scheduler.cli.app import EPILOG, app
from tools.reference.markdown import escaped, row, slug

HEAD = """\
# Commands

<!-- Made by `make reference` from src/lingua_scheduler/cli: edit that. -->

`lingua` runs, asks and steers a scheduler. [Running it](../running.md) says how to install it,
shows the most useful commands at work, and how to complete them with Tab. Every command has
`--help`. Options of `lingua` itself may also be given after the name of a command.
"""


def text() -> str:
    """The page."""
    context = click.Context(app, info_name="lingua")
    return "\n".join([HEAD, *_contents(context), *_command(context, 2)]) + "\n"


def _contents(context: click.Context) -> Iterator[str]:
    for inner in _commands(context):
        path = inner.command_path
        deeper = ", ".join(
            _link(each.command_path, each.info_name or "") for each in _commands(inner)
        )
        about = inner.command.get_short_help_str(200)
        yield f"- {_link(path)}: {_text(about)}" + (f" {deeper}" if deeper else "")


def _command(context: click.Context, level: int) -> Iterator[str]:
    command = context.command
    yield from ("", f"{'#' * level} {context.command_path}", "")
    yield from _prose(command.help or "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("", "```text", f"{context.command_path} {usage}", "```")
    own = {each.name for each in app.params}
    records = [
        param.get_help_record(context)
        for param in command.params
        if command is app or param.name not in own
    ]
    found = [record for record in records if record is not None and record[1]]
    if found:
        yield from ("", "| option | meaning |", "|---|---|")
        yield from (row(f"`{option}`".replace("|", "\\|"), _text(about)) for option, about in found)
    if command is app:
        yield from _exit_codes()
    for inner in _commands(context):
        yield from _command(inner, min(level + (command is not app), 3))


def _commands(context: click.Context) -> Iterator[click.Context]:
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield click.Context(command, parent=context, info_name=name)


def _prose(help_text: str) -> Iterator[str]:
    """Paragraphs; those that click does not wrap, because of a backspace, stay as they are."""
    for at, paragraph in enumerate(inspect.cleandoc(help_text).split("\n\n")):
        if at:
            yield ""
        if paragraph.startswith("\b\n"):
            yield from ("```text", paragraph.removeprefix("\b\n"), "```")
        else:
            yield _text(paragraph)


def _text(plain: str) -> str:
    """A text of the help, with commands, options and variables as code."""
    code = r"'(lingua [^']+)'|(?<![\w`-])(--[a-z][\w-]*|LINGUA_[A-Z_]*[A-Z])"
    return escaped(re.sub(code, lambda found: f"`{found[1] or found[2]}`", " ".join(plain.split())))


def _exit_codes() -> Iterator[str]:
    yield from ("", "| exit code | meaning |", "|---|---|")
    yield from (
        row(f"`{code}`", says) for code, says in re.findall(r"^  (\d)  (.+)$", EPILOG, re.M)
    )


def _link(path: str, name: str = "") -> str:
    return f"[{name or path}](#{slug(path)})"
