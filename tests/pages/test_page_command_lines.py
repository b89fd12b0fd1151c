"""Every command line of every page is one that its program takes; those of docs/command_line.md and docs/tutorial.md are run.

A command that no test can check is in `UNCHECKED`, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import pytest
from page_programs import ROOT, label, pages

from aiokprod.audit import command as audit_command
from aiokprod.cli.commands import group
from aiokprod.cli.common.help_names import HELP  # click keeps the help option that it first made for a command
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath

FENCE: Final = re.compile(r"^ *```([a-z]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
RUN: Final = ("docs/command_line.md", "docs/tutorial.md")
"""Pages whose commands tests run: tests/unit/project/test_command_line_page.py and test_tutorial.py."""
FOLDERS: Final = ("claims", "dump")
"""What the examples of docs/audit.md have written before."""
UNCHECKED: Final = {
    "python3 -m venv .venv": "Python's own",
    ". .venv/bin/activate": "made by the command before",
    "python -m pytest -n 3 --dist loadfile": "the tests that this one is part of",
    "python -m aiokprod.audit ...": "no command line but the name of one: it stands for those above it",
    "export AIOKPROD_BOOTSTRAP_SERVERS=localhost:9092 PROMETHEUS_MULTIPROC_DIR=/run/shop": "no command",
    "gunicorn shop:app": "run by tests/frameworks/test_prometheus_workers.py",
}
TOOLS: Final = {"kafka-client-metrics.sh": "org.apache.kafka.tools.ClientMetricsCommand"}
"""Scripts of Apache Kafka: the classes that they run."""
KAFKA: Final = "4.3.1"
LIMIT_S: Final = 60.0
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


class TakenError(BaseException):
    """The command line is taken; the command itself is not run."""


def taken(*_: object, **__: object) -> NoReturn:
    raise TakenError


def programs() -> tuple[str, ...]:
    """Return the first words of commands that are also looked for in blocks without a language."""
    return (*CHECKS, "python", "gunicorn", "pip")


def command_lines() -> list[tuple[str, str]]:
    """Return each command of each page, with the page."""
    found = []
    for page in pages():
        for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
            if language not in ("", "sh") or label(page) in RUN:
                continue
            for line in block.replace("\\\n", " ").splitlines():
                for text in re.sub(r"\s+#.*|\s{3,}the same$", "", line.strip()).split(" && "):
                    each = re.sub(r"\s+", " ", text.removeprefix(".venv/bin/"))
                    if each and (language == "sh" or each.partition(" ")[0] in programs()):
                        found.append((label(page), each))
    return found


# ---------------------------------------------------------------------- what takes a command line
def aiokprod_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[0] == "audit":  # click passes its words on, whatever they are
        monkeypatch.setattr(audit_command, "_audited", taken)
        with pytest.raises(TakenError):
            audit_command.main(words[1:], "aiokprod audit")
        return
    command: click.Command = group("0", "version")
    while isinstance(command, click.Group) and words[0] != "--version":
        found = command.get_command(click.Context(command, **HELP), words.pop(0))
        assert found is not None
        command = found
    if not isinstance(command, click.Group):
        command.make_context(command.name, words)


def pip_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the project has the extras and the dependency groups."""
    assert words[0] == "install"
    extras = {extra for word in words if (match := re.fullmatch(r"\.\[(.*)\]", word)) for extra in match[1].split(",")}
    groups = {words[index + 1] for index, word in enumerate(words) if word == "--group"}
    assert extras <= PROJECT["project"]["optional-dependencies"].keys()
    assert groups <= PROJECT["dependency-groups"].keys()
    rest = [word for word in words[1:] if not word.startswith(".") and word not in groups]
    assert set(rest) <= {"-q", "-U", "-e", "--group", "pip"}


def python_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a script of the repository up to the point where its parser has taken the words."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser) -> NoReturn:
        parse(parser)
        raise TakenError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "path", [str((ROOT / words[0]).parent), *sys.path])
    with pytest.raises(TakenError):
        runpy.run_path(str(ROOT / words[0]), run_name="__main__")


def nox_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that there is such a session, and that the script which it runs takes the words behind `--`."""
    assert (words[0], words[2]) == ("-s", "--")
    (session,) = [
        each
        for each in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body
        if isinstance(each, ast.FunctionDef) and each.name == words[1]
    ]
    match = re.search(r"session\.run\('python', '([\w/.]+)', \*session\.posargs\)", ast.unparse(session))
    assert match is not None
    python_takes([match[1], *words[3:]], monkeypatch)


def kafka_takes(words: list[str], main: str) -> None:
    """Check that the options are in the help of the tool."""
    command = [
        find_java(),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx128m",
        "-cp",
        kafka_classpath(KAFKA),
        main,
    ]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    known = set(re.findall(r"^(--[\w-]+)", done.stdout + done.stderr, re.MULTILINE))
    assert len(known) > 5, done.stdout + done.stderr
    assert {word for word in words if word.startswith("--")} <= known


CHECKS: Final[dict[str, Callable[[list[str], pytest.MonkeyPatch], None]]] = {
    "aiokprod": aiokprod_takes,
    "pip": pip_takes,
    "python": python_takes,
    "nox": nox_takes,
}


def checked(of_tools: bool) -> list[Any]:
    found = [(page, text) for page, text in command_lines() if text not in UNCHECKED]
    return [
        pytest.param(text, id=f"{page}: {text[:60]}") for page, text in found if (text.split()[0] in TOOLS) == of_tools
    ]


@pytest.mark.parametrize("line", checked(of_tools=False))
def test_a_command_line_of_a_page_is_valid(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(line)
    CHECKS[program](words, monkeypatch)


@pytest.mark.real
@pytest.mark.parametrize("line", checked(of_tools=True))
def test_a_command_line_of_a_tool_of_kafka_has_options_of_this_tool(line: str) -> None:
    program, *words = shlex.split(line)
    kafka_takes(words, TOOLS[program])


@pytest.mark.parametrize(
    "line",
    [
        "aiokprod audit claims/ --log dump/ --topic orders",
        "aiokprod audit claims/ --bootstrap localhost:9092 --topics orders",
        "aiokprod cluster --partitions 3",
        "nox -s soak -- --minute-s 5",
        "pip install '.[clie]'",
        "pip install -e . --group docs-too",
        "python bench/transaction_for_each_request.py --servers localhost:9092",
    ],
)
def test_a_command_line_that_its_program_does_not_take_is_found(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(line)
    with pytest.raises((AssertionError, SystemExit, click.UsageError)):
        CHECKS[program](words, monkeypatch)


def test_command_lines_are_found() -> None:
    assert len(checked(of_tools=False)) >= 20
    assert len(checked(of_tools=True)) >= 1


def test_what_is_not_checked_is_on_a_page() -> None:
    assert set(UNCHECKED) <= {text for _, text in command_lines()}
