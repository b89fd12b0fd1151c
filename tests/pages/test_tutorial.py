"""docs/tutorial.md is followed: its files are saved, its commands typed into two terminals, what it shows is compared."""

from __future__ import annotations

import os
import pty
import re
import select
import socket
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from page_programs import ROOT, Block, blocks

PAGE: Final = ROOT / "docs" / "tutorial.md"
LIMIT_S: Final = 300.0
SAYS_END: Final = "the command has ended with"


class Terminal:
    """A shell at a terminal that is typed into."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._keyboard, inside = pty.openpty()
        attributes = termios.tcgetattr(inside)
        attributes[1] &= ~termios.OPOST  # lines end as they were written
        attributes[3] &= ~termios.ECHO  # what is typed is not shown
        termios.tcsetattr(inside, termios.TCSANOW, attributes)
        self._shell = subprocess.Popen(
            ["setsid", "--ctty", "bash", "--norc", "--noediting", "-i"],
            cwd=folder, env=environment | {"TERM": "dumb", "PS1": ""}, stdin=inside, stdout=inside, stderr=inside,
        )  # fmt: skip
        os.close(inside)
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    def run(self, text: str) -> str:
        """Type commands, wait until the last has ended; return what they print."""
        self.type(f"{text}echo; echo {SAYS_END} $?\n")
        return self.wait_for(rf"^{SAYS_END} 0$")

    def wait_for(self, pattern: str) -> str:
        """Wait until a line matches; return what was printed since the last call."""
        end = time.monotonic() + LIMIT_S
        while (match := re.search(pattern, self._shown, re.MULTILINE)) is None:
            left = end - time.monotonic()
            readable, _, _ = select.select([self._keyboard], [], [], max(left, 0))
            assert readable, f"no {pattern!r} in {self._shown}"
            self._shown += os.read(self._keyboard, 65_536).decode(errors="replace")
        before, self._shown = self._shown[: match.end()], self._shown[match.end() :]
        return before

    def interrupt(self) -> None:
        """Press Ctrl-C, and wait until the command in the foreground has ended."""
        self.type("\x03")
        self.run("")

    def close(self) -> None:
        os.close(self._keyboard)  # SIGHUP for all that runs there
        self._shell.wait(LIMIT_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with a copy of this checkout, called `aiokprod`: an install writes beside the sources."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "aiokprod", "pyproject.toml", "README.md",
         "LICENSE", ".build"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        target = tmp_path / "aiokprod" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    return tmp_path


class Terminals:
    """The terminals of the tutorial, each opened when it is first used."""

    def __init__(self, first: Path, others: Path) -> None:
        kept = ("AIOKPROD_", "KAFKA_", "PYTHON", "VIRTUAL_ENV", "PYTEST")
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith(kept)}
        self._environment |= {"PYTHONUNBUFFERED": "1", "VIRTUAL_ENV_DISABLE_PROMPT": "1"}
        self._first, self._others = first, others
        self._open: dict[str, Terminal] = {}

    def __getitem__(self, name: str) -> Terminal:
        if name not in self._open:
            folder = self._others if self._open else self._first
            self._open[name] = Terminal(folder, self._environment)
        return self._open[name]

    def close(self) -> None:
        for terminal in self._open.values():
            terminal.close()


@pytest.fixture
def terminals(checkout: Path) -> Iterator[Terminals]:
    opened = Terminals(checkout, checkout / "shop")
    yield opened
    opened.close()


def steps() -> list[Block]:
    return blocks(PAGE)


def test_each_block_is_a_file_a_command_or_what_one_prints() -> None:
    kinds = {"python": "file", "sh": "terminal", "text": None}
    for block in steps():
        mark = kinds[block.language]
        assert mark is None or mark in block.marks, block.name
    names = [block.marks["terminal"].split(", ")[0] for block in steps() if block.language == "sh"]
    assert list(dict.fromkeys(names)) == ["1", "2", "3"]
    assert sum(block.language == "sh" for block in steps()) >= 7


@pytest.mark.slow
def test_the_tutorial_is_followed_from_nothing_to_records_that_are_seen(terminals: Terminals, checkout: Path) -> None:
    shop = checkout / "shop"
    port, kafka = free_port(), free_port()

    def moved(text: str) -> str:
        """Return a command or file with ports that are free here."""
        text = text.replace("localhost:9092", f"localhost:{kafka}").replace("8000", str(port))
        return text.replace("aiokprod cluster ", f"aiokprod cluster --port {kafka} --brokers 1 ")

    printed = ""
    for block in steps():
        if block.language == "python":
            (shop / block.marks["file"]).write_text(moved(block.text), encoding="utf-8")
        elif block.language == "text":
            if "terminal" in block.marks:  # what a command shows that goes on
                name, *rest = block.marks["terminal"].split(", ")
                printed = terminals[name].wait_for(f"^{re.escape(block.text.strip())}$")
                if "then: Ctrl-C" in rest:
                    terminals[name].interrupt()
            for line in block.text.splitlines():
                assert line in printed.splitlines(), f"{block.name}: {line} is not in {printed}"
        else:
            name, *rest = block.marks["terminal"].split(", ")
            terminal = terminals[name]
            if "after: Ctrl-C" in rest:
                terminal.interrupt()
            if "stays" in rest:
                terminal.type(moved(block.text))
                if "uvicorn" in block.text:
                    terminal.wait_for(r"Uvicorn running on")
            else:
                printed = terminal.run(moved(block.text))
