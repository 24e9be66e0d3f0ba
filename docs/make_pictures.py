"""Makes pictures of the terminal, as SVG, for the documentation: `make picture`.

    python docs/make_pictures.py FOLDER

Everything in them is real: commands are typed into a shell in tmux, against services, nodes and
jobs that run for that. Rich draws what the terminal shows. Needs tmux.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 80, 50
WITHIN_S = 90.0
# No name of this machine, and no log lines between the pictures' own.
ENVIRON = {"LINGUA_INSTANCE_ID": "local", "LINGUA_LOG_LEVEL": "error", "PS1": "$ "}
BIN = Path(sys.executable).parent


class Terminal:
    """A shell in a terminal of 80 columns, which types and reads as a person does."""

    def __init__(self, server: str, name: str) -> None:
        self._tmux = ["tmux", "-L", server]
        self._name = name
        self.run(
            *("-f", os.devnull, "new-session", "-d", "-s", name, "-x", str(COLUMNS)),
            *("-y", str(LINES), "bash --norc --noprofile"),
        )
        exports = " ".join(f"{key}={shlex.quote(value)}" for key, value in ENVIRON.items())
        self.type(f"export {exports} PATH={BIN}:$PATH; clear")
        self.wait(lambda shown: shown.strip() == "$")

    def run(self, *command: str) -> str:
        """What tmux answers."""
        return subprocess.run(
            [*self._tmux, *command], check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def type(self, line: str) -> None:
        """Types a line."""
        self.run("send-keys", "-t", self._name, "-l", line)
        self.run("send-keys", "-t", self._name, "Enter")

    def press(self, key: str) -> None:
        """Presses a key, such as C-c."""
        self.run("send-keys", "-t", self._name, key)

    def shown(self, *options: str) -> str:
        """What the terminal shows."""
        return self.run("capture-pane", "-p", *options, "-t", self._name)

    def wait(self, condition: Callable[[str], object]) -> None:
        """Waits until the condition holds for what is shown."""
        deadline = time.monotonic() + WITHIN_S
        while not condition(self.shown()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not shown within {WITHIN_S:g} s; it is:\n{self.shown()}")
            time.sleep(0.05)

    def command(self, line: str) -> None:
        """Types a command on an empty screen, and waits for its end."""
        self.type("clear")
        self.wait(lambda shown: shown.strip() == "$")
        self.another(line)

    def another(self, line: str) -> None:
        """Types a command below what is there, and waits for its end."""
        self.type(line)
        self.wait(lambda shown: re.search(rf"\$ {re.escape(line)}\n.*\n\$$", shown.rstrip(), re.S))

    def child(self, pattern: str) -> int:
        """The process id of a child of the command that runs, by its command line."""
        shell = self.run("display-message", "-p", "-t", self._name, "#{pane_pid}").strip()
        (command,) = _children(shell)
        (found,) = _children(command, pattern)
        return int(found)

    def picture(self, path: Path, title: str) -> None:
        """Draws what it shows, without the prompt that waits for the next command."""
        text = re.sub(r"\n\$\s*$", "", self.shown("-e").rstrip())
        with open(os.devnull, "w") as nowhere:
            console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
            console.print(Text.from_ansi(text), soft_wrap=True)
        svg = console.export_svg(title=title, unique_id=path.stem)
        # Fonts would come from another host.
        path.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def _children(pid: str, pattern: str = ".") -> list[str]:
    found = subprocess.run(
        ["pgrep", "-P", pid, "-f", "--", pattern], stdout=subprocess.PIPE, text=True
    )
    return found.stdout.split()


@contextmanager
def terminals() -> Iterator[Callable[[str], Terminal]]:
    """Opens terminals, which end with this block, and all that runs in them."""
    server = f"lingua-pictures-{os.getpid()}"
    try:
        yield lambda name: Terminal(server, name)
    finally:
        subprocess.run(["tmux", "-L", server, "kill-server"], stderr=subprocess.DEVNULL)


def lingua(*args: str) -> str:
    """A command whose output is no part of a picture."""
    command = [str(BIN / "lingua"), *args]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def tone(path: Path, seconds: float) -> None:
    """Writes a WAV file with a tone: the nodes only measure it."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(b"\x00\x30\x00\xd0" * int(8000 * seconds))


def main(folder: Path) -> None:
    """Makes all pictures."""
    if shutil.which("tmux") is None:
        sys.exit("Error: tmux is not installed. To get it: apt-get install tmux")
    with terminals() as opened, tempfile.TemporaryDirectory(prefix="lingua-") as work:
        speech = Path(work) / "hello.wav"
        tone(speech, 2.0)
        other, up = opened("other"), opened("up")
        other.type(f"cd {work}; clear")
        other.command("lingua nodes list")
        up.type("lingua up --demo")
        up.wait(lambda shown: re.search(r"redis +ready", shown) and "starting" in shown)
        up.picture(folder / "up-start.svg", "lingua up --demo, starting")
        up.wait(lambda shown: "2 nodes" in shown)
        other.another("lingua nodes show demo1")
        other.picture(folder / "error.svg", "an error, and what to do")
        os.kill(up.child("sample-node --id demo-2"), 9)
        up.wait(lambda shown: "demo-2 | is back" in shown)
        other.command("lingua speak hello.wav --from en --to es")
        up.wait(lambda shown: "2 nodes" in shown and "1 done" in shown)
        up.picture(folder / "up.svg", "lingua up --demo")
        make_lists(opened, other, folder)
        up.press("C-c")
        up.wait(lambda shown: "Everything has ended." in shown)


def make_lists(opened: Callable[[str], Terminal], other: Terminal, folder: Path) -> None:
    """The pictures of nodes and of a job, with nodes of which some fail."""
    fleet = opened("fleet")
    for line in (
        "lingua sim-nodes --count 2 --prefix rome --langs it,en --fail-rate 1 2>/dev/null &",
        "lingua sim-nodes --count 2 --prefix porto --langs it,en --slots 4 2>/dev/null &",
        "lingua sample-node --id kyiv --langs uk,en 2>/dev/null & kyiv=$!",
    ):
        fleet.type(line)
    other.wait(lambda _: len(json.loads(lingua("nodes", "list", "--json"))["nodes"]) == 7)
    retried = ""
    while not retried:
        other.command("lingua speak hello.wav --from it --to en --fast")
        jobs = json.loads(lingua("jobs", "list", "--pair", "it:en", "--json"))["jobs"]
        retried = next((job["job_id"] for job in jobs if len(job["attempts"]) == 2), "")
    other.command(f"lingua jobs show {retried}")
    other.picture(folder / "job.svg", "lingua jobs show")
    fleet.type("kill -9 $kyiv")
    lingua("nodes", "drain", "demo-2")
    other.wait(lambda _: '"OFFLINE"' in lingua("nodes", "list", "--json"))
    other.command("lingua nodes list")
    other.picture(folder / "nodes.svg", "lingua nodes list")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
