"""A group of commands: the command that was perhaps meant, and a help that is not cut."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from aiokprod.cli.common.group import Group, meant

KNOWN = ("produce", "read", "tail", "topics", "perf")


@pytest.mark.parametrize(
    ("typed", "found"),
    [("prodcue", "produce"), ("topic", "topics"), ("consume", "read"), ("send", "produce"), ("xyz", None), ("", None),
     ("help", "--help"), ("list", "topics list"), ("describe", "topics describe")],
)  # fmt: skip
def test_the_command_that_was_meant(typed: str, found: str | None) -> None:
    assert meant(typed, KNOWN) == found


def test_a_word_of_other_tools_means_nothing_where_its_command_is_not() -> None:
    assert meant("consume", ("list", "describe")) is None
    assert meant("list", ("explain",)) is None
    assert meant("show", ("explain",)) == "explain"


def group_of(**commands: str) -> Group:
    made = Group("tool")
    for name, text in commands.items():
        made.add_command(click.Command(name, help=text))
    return made


def test_a_mistyped_command_is_told_with_the_nearest_one() -> None:
    tool = group_of(describe="Describe.")
    done = CliRunner().invoke(tool, ["descibe"])
    assert done.exit_code == 2 and "No such command 'descibe'. Did you mean 'describe'?" in done.stderr
    far = CliRunner().invoke(tool, ["xyz"])
    assert far.exit_code == 2 and "No such command 'xyz'" in far.stderr and "Did you mean" not in far.stderr
    option = CliRunner().invoke(tool, ["--describe"])
    assert option.exit_code == 2 and "No such option" in option.stderr


def test_the_list_has_the_whole_first_line_of_each_command() -> None:
    line = (
        "A line that is longer than any terminal is wide: " + ", ".join(f"word{number}" for number in range(20)) + "."
    )
    told = CliRunner().invoke(group_of(long=f"{line}\n\nMore."), ["--help"]).stdout
    assert line in " ".join(told.split()) and "More." not in told


def test_a_shell_is_offered_the_commands_with_their_whole_lines_and_the_options() -> None:
    line = "What it does, in more words than fit into a column of forty-five characters: all of them."
    tool = group_of(describe=line, list="List.")
    context = click.Context(tool)
    assert [(item.value, item.help) for item in tool.shell_complete(context, "de")] == [("describe", line)]
    assert [item.value for item in tool.shell_complete(context, "")] == ["describe", "list"]
    assert [item.value for item in tool.shell_complete(context, "--h")] == ["--help"]
