"""Commands in the text and in the tables of every page are ones that their programs take, or names of what they have.

Words in capitals (`TOPIC`), `...` and `[OPTIONS]` stand for something; such a command, and one that lacks arguments
(`aiokprod topics create`), must name existing commands, options, sessions and files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Final

import click
import pytest
from page_blocks import spans
from page_programs import ROOT, label, pages
from test_page_command_lines import aiokprod_takes, nox_takes, pip_takes

from aiokprod.cli.commands import group
from aiokprod.cli.common.help_names import HELP

BEGINS: Final = re.compile(r"(aiokprod|pip|nox|python|pytest) ")
PLACEHOLDER: Final = re.compile(r"\b[A-Z][A-Z_]+\b|\.\.\.|\[OPTIONS\]|\{\w+\|")


def of_module(match: re.Match[str]) -> str:
    return f"aiokprod{match[1].replace('.', ' ')}"


def commands() -> list[tuple[str, str]]:
    """Return each command of each page that stands in the text or in a table, with the page."""
    found = list[tuple[str, str]]()
    for page in pages():
        for _, text in spans(page.read_text(encoding="utf-8")):
            plain = re.sub(r"^(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?", "", text)
            plain = re.sub(r"^python3? -m aiokprod(\.audit$|\.audit | )", of_module, plain)
            if BEGINS.match(plain):
                found.append((label(page), plain))
    return list(dict.fromkeys(found))


def names_exist(words: list[str]) -> None:
    """Check that the words begin with the name of a command, and that it has the options among them."""
    command: click.Command = group("0", "version")
    context = click.Context(command, **HELP)
    words = [word for word in words if not re.fullmatch(r"\.\.\.|\[.*\](\.\.\.)?", word)]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        each, *words = words
        if each.isupper():
            return
        for name in each.split("|"):
            found = command.get_command(context, name)
            assert found is not None, f"there is no command {name}"
        command = found
    if command.name == "audit":
        return
    options = {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)}
    for word in words[: words.index("--") if "--" in words else None]:
        name = word.partition("=")[0]
        is_number = re.fullmatch(r"-\d+", name)
        assert not name.startswith("-") or is_number or name in options, f"{command.name} has no option {name}"


def check(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program take a command; if it is not a whole one, check the names in it."""
    program, *words = shlex.split(re.split(r" [|>] ", text)[0])
    if program == "aiokprod":
        names_exist(words)
        if PLACEHOLDER.search(text) or any("|" in word for word in words):
            return
        lacking = (click.BadOptionUsage,) if words[-1].startswith("--") else ()  # `--file`, without a file
        with contextlib.suppress(click.MissingParameter, click.exceptions.Exit, *lacking):
            if words[0].startswith("-"):
                group("0", "version").make_context("aiokprod", words)
            elif words != ["audit"]:
                with contextlib.suppress(IndexError):  # the name of a group: it has been found
                    aiokprod_takes(words, monkeypatch)
    elif program == "pip":
        pip_takes(words, monkeypatch)
    elif program == "nox":
        nox_takes(words, monkeypatch)
    elif program == "python" and words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None, text
    else:
        paths = [word for word in words if "/" in word or word.endswith(".py")]
        assert paths or program == "pytest", text
        assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("page", "text"), commands())
def test_a_command_in_the_text_of_a_page_is_valid(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "claims").mkdir()
    monkeypatch.chdir(tmp_path)
    check(text, monkeypatch)


@pytest.mark.parametrize(
    "text",
    [
        "aiokprod clusterr --nonsense4",
        "aiokprod clusterr",
        "aiokprod topics craete TOPIC",
        "aiokprod topics create --partition 3",
        "aiokprod read TOPIC --form 5",
        "aiokprod read orders --from nowhere",
        "aiokprod transactions list|descrybe",
        "aiokprod --versions",
        "aiokprod cluster orders --partitions 3 | head",
        'pip install "aiokprod[clie]"',
        "pip install fastapy",
        "pip instal fastapi",
        "python -m aiokprod.audits",
        "nox -s soka",
        "nox -s soak -- --minute-s 5 --report DIR",
        "nox -s lint -- words",
        "python tests/no_such.py",
        "pytest tests/units",
    ],
)
def test_a_command_that_its_program_does_not_take_is_found(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((AssertionError, ValueError, SystemExit, click.UsageError)):
        check(text, monkeypatch)


def test_commands_are_found_in_text_and_in_tables() -> None:
    assert len(commands()) >= 150
    assert spans(
        "A `aiokprod clusterr\n--nonsense` in\n\n| `nox -s a \\| b` |\n\n```sh\naiokprod x\n```\n``pip `x` ``"
    ) == [
        (1, "aiokprod clusterr --nonsense"),
        (4, "nox -s a | b"),
        (9, "pip `x`"),
    ]
