"""docs/command_line.md: its tables are what the commands say, and its examples print what stands there.

    PYTHONPATH=. python tests/unit/project/test_command_line_page.py

writes the tables of options from the commands.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from aiokprod import __version__
from aiokprod.cli.commands import COMMANDS, group
from aiokprod.cli.common.help_names import HELP  # click keeps the help option that it first made for a command
from aiokprod.testing import MockCluster

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command_line.md"
COMMON = "common"
COMMON_NAMES = ("bootstrap", "config_file", "pairs", "timeout")
ON_ANOTHER_PAGE = ("audit",)
TABLE = re.compile(r"<!-- options: ([\w -]+) -->\n(.*?)<!-- end -->", re.DOTALL)
TAG = re.compile(r"<(?=[A-Za-z/!?])")  # what Markdown takes for HTML; `0<=x<=10` is text
EXAMPLE = re.compile(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield the commands that are no groups, with their names after `aiokprod`."""

    def walk(path: list[str], command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield " ".join(path), command
            return
        context = click.Context(command, **HELP)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from walk([*path, name], inner)

    yield from walk([], group(__version__, "version"))


def table_of(name: str, command: click.Command) -> str:
    """Return what the page says of a command: usage, and a row for each option of its own."""
    context = click.Context(command, info_name=f"aiokprod {name}", **HELP)
    usage = command.get_usage(context).removeprefix("Usage: ").split()
    whole = [option for option in command.params if isinstance(option, click.Option)]
    if name == COMMON:
        options = [option for option in whole if option.name in COMMON_NAMES]
        lines = []
    else:
        options = [option for option in whole if option.name not in COMMON_NAMES or not is_common(option)]
        first = (command.help or command.short_help or "").partition("\n")[0]
        lines = [f"`{' '.join(usage)}`: {first}", ""]
    if options:
        lines += ["| option | meaning |", "|---|---|"]
    for option in options:
        found = option.get_help_record(context)
        assert found is not None
        spelled, text = (re.sub(r"\s+", " ", part).strip().replace("|", "\\|") for part in found)
        lines.append(f"| `{spelled}` | {TAG.sub('&lt;', text)} |")
    return "\n".join(lines).rstrip() + "\n"


def is_common(option: click.Option) -> bool:
    """Return whether it is one of `connection_options`, and not an option of the same name."""
    return option.help in {each.help for each in ping_options() if each.name == option.name}


def ping_options() -> list[click.Option]:
    ping = dict(commands())["ping"]
    return [option for option in ping.params if isinstance(option, click.Option)]


def tables() -> dict[str, str]:
    found = {name: table_of(name, command) for name, command in commands() if name not in ON_ANOTHER_PAGE}
    return {COMMON: table_of(COMMON, dict(commands())["ping"]), **found}


def written() -> str:
    """Return the page with the tables that the commands give."""
    made = tables()
    return TABLE.sub(lambda m: f"<!-- options: {m[1]} -->\n{made[m[1]]}<!-- end -->", PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", list(tables()))
def test_a_table_has_every_option_as_the_command_explains_it(name: str) -> None:
    found = dict(TABLE.findall(PAGE.read_text(encoding="utf-8")))
    assert name in found, f"docs/command_line.md has no <!-- options: {name} -->"
    assert found[name] == tables()[name], f"run {Path(__file__).name}, which writes the tables"


def test_a_range_is_readable_in_the_file_too() -> None:
    assert "0.001<=x<=86400" in PAGE.read_text(encoding="utf-8")
    assert TAG.sub("&lt;", "0<=x<10, <name>, </b>") == "0<=x<10, &lt;name>, &lt;/b>"


def test_every_command_has_a_section() -> None:
    heads = re.findall(r"^#+ aiokprod (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name for name, _ in commands()} <= set(heads)
    assert {head.split()[0] for head in heads} == set(COMMANDS)


def test_the_statuses_are_those_of_the_code() -> None:
    from aiokprod.cli.common.running import PIPE
    from aiokprod.cli.common.statuses import BY_SIGNAL, DONE, NOT_DONE, NOT_GOOD

    table = PAGE.read_text(encoding="utf-8").split("\n## Exit statuses\n")[1].split("\n## ")[0]
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert listed == [DONE, NOT_GOOD, NOT_DONE, BY_SIGNAL + 2, BY_SIGNAL + PIPE]


def test_the_examples_print_what_stands_there(tmp_path: Path) -> None:
    shim = tmp_path / "bin" / "aiokprod"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m aiokprod "$@"\n')
    shim.chmod(0o755)
    examples = EXAMPLE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(examples) >= 15
    mark = "---- end of an example"
    program = "".join(f"{commands}\necho '{mark}'\n" for commands, _ in examples)
    with MockCluster(cluster_id="aiokprod-cluster-9092") as cluster:
        environment = {
            **os.environ,
            "PATH": f"{shim.parent}:{os.environ['PATH']}",
            "AIOKPROD_BOOTSTRAP_SERVERS": cluster.bootstrap_servers.split(",")[0],  # as on the page
            "PYTHONPATH": str(PAGE.parents[1]),
        }
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{program}"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    printed = done.stdout.split(f"{mark}\n")
    assert len(printed) == len(examples) + 1, done.stdout
    for (commands_, expected), output in zip(examples, printed, strict=False):
        pattern = ".*".join(re.escape(part) for part in expected.rstrip("\n").split("..."))
        assert re.fullmatch(pattern, output.rstrip("\n"), re.DOTALL), (
            f"{commands_}\nprints\n{output}\nand not\n{expected}"
        )


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
