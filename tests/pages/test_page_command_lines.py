"""Every `aiokprod` command line of every page is one that the command line takes; those of docs/command_line.md are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

import click
import pytest
from page_programs import label, pages

from aiokprod.cli.commands import group
from aiokprod.cli.common.help_names import HELP  # click keeps the help option that it first made for a command

FENCE: Final = re.compile(r"^```([a-z]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN: Final = ("docs/command_line.md",)  # tests/unit/project/test_command_line_page.py
FOLDERS: Final = ("claims", "dump")
"""What the examples of docs/audit.md have written before."""


def lines() -> list[Any]:
    found = []
    for page in pages():
        for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
            if language not in ("", "sh") or label(page) in RUN:
                continue
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("aiokprod "):
                    found.append(pytest.param(line, id=f"{label(page)}: {line[9:60]}"))
    return found


@pytest.mark.parametrize("line", lines())
def test_a_command_line_of_a_page_is_valid(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    _, *words = shlex.split(line, comments=True)
    command: click.Command = group("0", "version")
    while isinstance(command, click.Group) and words[0] != "--version":
        found = command.get_command(click.Context(command, **HELP), words.pop(0))
        assert found is not None, line
        command = found
    if not isinstance(command, click.Group):
        command.make_context(command.name, words)


def test_command_lines_are_found() -> None:
    assert len(lines()) >= 10
