"""Whether what a command in a document names exists: subcommands, options, targets, files."""

import importlib.util
import re
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import click
import yaml

from lingua_scheduler.cli.app import app
from lingua_scheduler.services.console.http.routes import Kind, route_of
from lingua_scheduler.services.runtime.settings.settings import unknown_variables

from .blocks import ELSEWHERE, ROOT, program, variables

_MAKEFILE = (ROOT / "Makefile").read_text()
_COMPOSE = (ROOT / "compose.yaml").read_text()
_TARGETS = frozenset(re.findall(r"^([a-z][\w-]*):", _MAKEFILE, re.MULTILINE))


def problems(words: list[str]) -> list[str]:
    """What is wrong with a command; nothing if all that it names exists."""
    own = variables(words)
    rest = words[len(own) :]
    found = [f"{name} sets nothing" for name in own if not _is_known_variable(name)]
    name = program(words)
    if name == "python":
        return found + _python_problems(rest[1:], own.get("PYTHONPATH", "."))
    if name in _RULES:
        return found + _RULES[name](rest[1:])
    if rest and "/" in rest[0]:
        return found + ([] if (ROOT / rest[0]).exists() else [f"there is no {rest[0]}"])
    if name not in {*ELSEWHERE, "chmod", "mkdir"}:
        found.append(f"{name or words} is a command that no rule is for: see ELSEWHERE")
    return found


def lingua_problems(words: list[str]) -> list[str]:
    """The subcommand and every option must exist."""
    command: click.Command = app
    context = click.Context(app)
    found, options = [], _options(app)
    for word in words:
        if word.startswith("-") and word not in ("-", "--"):
            if word.split("=")[0] not in options:
                found.append(f"'lingua {' '.join(words)}' has no option {word}")
        elif isinstance(command, click.Group):
            inner = command.get_command(context, word)
            if inner is None:
                return [f"'lingua {' '.join(words)}' has no command {word}"]
            command = inner
            options |= _options(inner)
    return found


def _curl_problems(words: list[str]) -> list[str]:
    """The addresses are those of documents of the console."""
    addresses = [urlsplit(word) for word in words if word.startswith("http")]
    return [
        f"the console has no {address.path}"
        for address in addresses
        if route_of(address.path).kind is not Kind.DOCUMENT
    ]


def _options(command: click.Command) -> set[str]:
    named = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return {*named, "-h", "--help"}


def make_problems(words: list[str]) -> list[str]:
    """Targets exist, and variables are read by the Makefile."""
    found = []
    for word in words:
        name, is_variable, _ = word.partition("=")
        if is_variable and not re.search(rf"\$[({{]{name}\b|^{name}\b", _MAKEFILE, re.MULTILINE):
            found.append(f"the Makefile has no variable {name}")
        elif not is_variable and word not in _TARGETS:
            found.append(f"the Makefile has no target {word}")
    return found


def _python_problems(words: list[str], path: str) -> list[str]:
    if words[:1] == ["-m"]:
        module = words[1].split(".")
        as_files = [ROOT / path / Path(*module), (ROOT / path / Path(*module)).with_suffix(".py")]
        exists = any(each.exists() for each in as_files) or importlib.util.find_spec(words[1])
        return [] if exists else [f"there is no module {words[1]}"]
    return [] if (ROOT / words[0]).exists() else [f"there is no {words[0]}"]


def _pip_problems(words: list[str]) -> list[str]:
    """Extras of this package exist."""
    named = [each for word in words for each in re.findall(r"^lingua-scheduler\[(.*)\]$", word)]
    extras = {extra for each in named for extra in each.split(",")}
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [f"there is no extra {each}" for each in extras if each not in known]


def _helm_problems(words: list[str]) -> list[str]:
    """The command must exist, and every file of the repository; others are the reader's own."""
    known = {"install", "upgrade", "test", "template", "lint", "uninstall"}
    found = [] if words[0] in known else [f"helm has no command {words[0]}"]
    return found + [
        f"there is no {word}"
        for word in words
        if word.startswith("k8s/") and not (ROOT / word).exists()
    ]


def _kubectl_problems(words: list[str]) -> list[str]:
    if "--" in words:
        inner = words[words.index("--") + 1 :]
        return problems(inner)
    named = [after for word, after in pairwise(words) if word in ("-k", "-f")]
    return [f"there is no {each}" for each in named if each != "-" and not (ROOT / each).exists()]


def _compose_problems(words: list[str]) -> list[str]:
    """The services exist, and so does what is run in one."""
    services = yaml.safe_load(_COMPOSE)["services"]
    if words[:2] == ["compose", "exec"]:
        service, *inner = words[2:]
        return ([] if service in services else [f"there is no {service}"]) + problems(inner)
    scaled = [after.partition("=")[0] for word, after in pairwise(words) if word == "--scale"]
    return [f"there is no service {each}" for each in scaled if each not in services]


def _is_known_variable(name: str) -> bool:
    if name.startswith("LINGUA_"):
        return not unknown_variables({name: ""})
    if re.search(rf"\b{name}\b", _MAKEFILE) or name == "PYTHONPATH" or f"${{{name}-" in _COMPOSE:
        return True
    # Of an example or a test, which reads it by this name.
    sources = [each for part in ("examples", "tests") for each in (ROOT / part).rglob("*.py")]
    return any(f'"{name}"' in each.read_text() for each in sources)


def _pytest_problems(words: list[str]) -> list[str]:
    return [f"there is no {each}" for each in words if not (ROOT / each).exists()]


def _export_problems(words: list[str]) -> list[str]:
    return [f"{each} sets nothing" for each in variables(words) if not _is_known_variable(each)]


_RULES: dict[str, Callable[[list[str]], list[str]]] = {
    "curl": _curl_problems,
    "docker": _compose_problems,
    "export": _export_problems,
    "helm": _helm_problems,
    "kubectl": _kubectl_problems,
    "lingua": lingua_problems,
    "make": make_problems,
    "pip": _pip_problems,
    "pytest": _pytest_problems,
}
"""By program: what is wrong with its arguments."""
