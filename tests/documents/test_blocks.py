"""Documents name only what exists: commands, options, targets, variables, files and links.

`blocks.TREATMENTS` says what is done with each kind of block; test_programs and test_commands run
those that can run here.
"""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from kubernetes_validate import validate
from opentelemetry.sdk import environment_variables

from lingua_scheduler.services.runtime.settings.settings import unknown_variables
from tests.k8s.helm.chart import with_values

from .blocks import ROOT, TREATMENTS, Block, blocks, commands, pages, variables
from .names import lingua_problems, make_problems, problems

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]


def each(*languages: str) -> list[Block]:
    return blocks(*languages)


def test_every_block_says_what_it_is() -> None:
    unknown = [
        f"{block}: {block.language!r}" for block in each() if block.language not in TREATMENTS
    ]
    assert unknown == []


@pytest.mark.parametrize("block", each("bash"), ids=str)
def test_every_command_names_only_what_exists(block: Block) -> None:
    assert [problem for words in commands(block.code) for problem in problems(words)] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_within_sentences_name_only_what_exists(page: Path) -> None:
    prose = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    found: list[str] = []
    for span in re.findall(r"`((?:[A-Z_]+=\S+ )*(?:lingua|make) [^`]+)`", prose):
        words = shlex.split(span)
        words = words[len(variables(words)) :]
        if words[:1] == ["lingua"]:
            found += lingua_problems(words[1:])
        elif words[:1] == ["make"]:
            found += make_problems(words[1:])
    assert found == []


@pytest.mark.parametrize("page", PAGES)
def test_settings_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"\bLINGUA_[A-Z0-9_]*[A-Z0-9]\b(?!\*|_)", page.read_text()))
    assert unknown_variables(dict.fromkeys(named, "")) == []


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    files = [link.partition("#") for link in links if "://" not in link]
    assert [to for to, _, _ in files if to and not (page.parent / to).exists()] == []
    missing = [
        f"{to}#{anchor}"
        for to, _, anchor in files
        if anchor and anchor not in anchors((page.parent / to) if to else page)
    ]
    assert missing == []


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("block", each("ini"), ids=str)
def test_environment_variables_exist(block: Block) -> None:
    found = [variables([line.split(" #")[0].strip()]) for line in block.code.splitlines() if line]
    assert all(found), "a line sets no variable"
    for name in (name for each in found for name in each):
        if name.startswith("OTEL_"):
            assert hasattr(environment_variables, name), name
        else:
            assert name.startswith("LINGUA_"), name
            assert unknown_variables({name: ""}) == []


@pytest.mark.parametrize("block", each("yaml"), ids=str)
def test_manifests_are_valid(block: Block) -> None:
    for document in yaml.safe_load_all(block.code):
        if "kind" in document:
            validate(document, "1.31", strict=True)
        # tests/compose validates the compose files of its guide.
        elif block.page.name != "compose.md":
            assert with_values("overlays/production", **document).resources


# ---- that these checks find something ----


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("lingua fly", "has no command fly"),
        ("lingua nodes lits", "has no command lits"),
        ("lingua nodes list --fast", "has no option --fast"),
        ("make runn", "no target runn"),
        ("make run SPEED=3", "no variable SPEED"),
        ("LINGUA_REDIS_URI=x lingua up", "LINGUA_REDIS_URI sets nothing"),
        ("python -m tests.robust", "no module tests.robust"),
        ("pytest tests/robust", "no tests/robust"),
        ("kubectl apply -k k8s/overlays/none", "no k8s/overlays/none"),
        ("kubectl exec pod -- lingua nodes lits", "has no command lits"),
        ("docker compose exec pool lingua nodes lits", "has no command lits"),
        ("docker compose up --scale balancer=2", "no service balancer"),
        ("POOL_PORT= docker compose up", "POOL_PORT sets nothing"),
        ("helm instal lingua k8s/chart", "has no command instal"),
        ("helm install lingua k8s/charts", "no k8s/charts"),
        (
            "helm install lingua k8s/chart --values k8s/chart/values/prod.yaml",
            "no k8s/chart/values",
        ),
        ("frobnicate", "no rule is for"),
    ],
)
def test_what_does_not_exist_is_named(command: str, problem: str) -> None:
    (words,) = commands(command)
    (found,) = problems(words)
    assert problem in found
