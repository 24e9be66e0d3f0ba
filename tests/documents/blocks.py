"""The code blocks of every document, and what the tests do with each kind.

A block without a language is an error: nobody could tell whether it is meant to run.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

TREATMENTS = {
    # Runs as a program beside a real scheduler (test_programs).
    "python",
    # Runs with Node.js beside a real scheduler (test_javascript).
    "js",
    # A page: its script has the right types (test_javascript).
    "html",
    # Its commands run in order (test_commands). A block with a command of ELSEWHERE is checked
    # instead: commands, options, targets, files and variables that it names exist (test_blocks).
    "bash",
    # Environment variables: each exists (test_blocks).
    "ini",
    # A valid Kubernetes object, values with which Helm renders our chart (test_blocks), or a
    # compose file (tests/compose).
    "yaml",
    # Output and pictures, to be read: nothing to run.
    "text",
    "mermaid",
}

# Programs that need a cluster, a registry, root, or as much time as all tests. What `make run` does
# is in tests/e2e/test_conversation.py.
ELSEWHERE = {
    "docker": "needs a container engine",
    "helm": "needs a cluster; tests/k8s renders the chart",
    "kind": "needs a container engine",
    "kubectl": "needs a cluster",
    "make": "sets up an environment, or runs for minutes",
    "openssl": "makes a secret for containers",
    "pip": "installs into the environment of the tests; test_cli_up_demo runs what it installs",
    "pytest": "runs tests within a test",
    "python": "runs parts of the repository that have tests of their own",
}


# Pages that run from top to bottom, as their reader types them (test_stories).
STORIES = ("docs/tutorials", "docs/howto")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, its title, and what is in it."""

    page: Path
    line: int
    language: str
    title: str
    code: str

    def __str__(self) -> str:
        """Such as `README.md:17`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_of_story(self) -> bool:
        """Whether its page runs as a whole."""
        return str(self.page.relative_to(ROOT).parent) in STORIES

    @property
    def is_elsewhere(self) -> bool:
        """Whether a command in it cannot run in a test."""
        return any(program(words) in ELSEWHERE for words in commands(self.code))


def pages() -> list[Path]:
    """Every document of the repository."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(*languages: str) -> list[Block]:
    """Those of all documents but stories, in these languages; all without any."""
    found = [block for page in pages() for block in blocks_of(page) if not block.is_of_story]
    return [block for block in found if not languages or block.language in languages]


def blocks_of(page: Path) -> Iterator[Block]:
    """Those of one document."""
    text = page.read_text()
    fenced = r'^( *)```([\w-]*)(?: title="([^"\n]+)")?\n(.*?)^\1```$'
    for found in re.finditer(fenced, text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found[2], found[3] or "", textwrap.dedent(found[4]))


def lines(code: str) -> list[str]:
    """The lines of a shell block, as the shell joins them, without comments and empty ones."""
    joined = code.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.split("#")[0].strip()]


def commands(code: str) -> list[list[str]]:
    """The commands of a shell block, each as its words; what only steers the shell is left out."""
    found: list[list[str]] = []
    for line in lines(code):
        words = shlex.split(line, comments=True)
        while words:
            until = next((at for at, word in enumerate(words) if word in ("|", "&&", "||")), None)
            command, words = words[:until], words[until + 1 :] if until is not None else []
            if command[0] not in ("for", "do", "done"):
                found.append(command)
    return found


def variables(words: list[str]) -> dict[str, str]:
    """The variables that are set for a command alone, before it."""
    leading = re.compile(r"([A-Z_]+)=(.*)", re.DOTALL)
    found: dict[str, str] = {}
    for word in words:
        match = leading.fullmatch(word)
        if match is None:
            break
        found[match[1]] = match[2]
    return found


def program(words: list[str]) -> str:
    """What a command runs, without its folder."""
    rest = words[len(variables(words)) :]
    return Path(rest[0]).name if rest else ""
