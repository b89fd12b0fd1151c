"""The group of commands: its help imports nothing, errors are one line, a shell can complete."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from shutil import which

import click
import pytest
from cli_runs import AIOKPROD, ok, run
from click.shell_completion import ShellComplete

from aiokprod.audit.command import parser_of
from aiokprod.cli.commands import COMMANDS
from aiokprod.cli.common.help_names import HELP
from aiokprod.testing import MockCluster

HEAVY = (
    "asyncio",
    "ssl",
    "rich",
    "numpy",
    "pyarrow",
    "aiokprod.producer",
    "aiokprod.reader",
    "aiokprod.testing",
    "hypothesis",
)


def loaded_by(*arguments: str, **environ: str) -> set[str]:
    program = (
        "import sys, atexit, os\n"
        f"sys.argv = ['aiokprod', *{list(arguments)!r}]\n"
        "atexit.register(lambda: os.write(2, '\\n'.join(sys.modules).encode()))\n"
        "from aiokprod.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=60, check="_AIOKPROD_COMPLETE" not in environ, env=os.environ | environ,
    )  # fmt: skip
    return set(done.stderr.splitlines())


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_the_help_imports_no_heavy_module(argument: str) -> None:
    loaded = loaded_by(argument)
    assert "aiokprod.cli.commands" in loaded
    assert loaded & set(HEAVY) == set()
    assert not {name for name in loaded if name.startswith("aiokprod.cli.") and name.split(".")[2] in COMMANDS}


def test_a_shell_that_asks_for_the_commands_imports_none() -> None:
    words = {"COMP_WORDS": "aiokprod ", "COMP_CWORD": "1"}
    loaded = loaded_by(_AIOKPROD_COMPLETE="bash_complete", **words)
    assert "aiokprod.cli.commands" in loaded
    assert not {name for name in loaded if name.startswith("aiokprod.cli.") and name.split(".")[2] in COMMANDS}


def test_the_help_of_a_command_imports_no_other_command() -> None:
    loaded = loaded_by("read", "--help")
    assert {name.split(".")[2] for name in loaded if name.startswith("aiokprod.cli.")} <= {
        "main",
        "commands",
        "common",
        "read",
    }
    assert loaded & {"rich", "numpy", "pyarrow", "aiokprod.producer", "aiokprod.testing"} == set()


@pytest.mark.parametrize("name", list(COMMANDS))
def test_the_list_has_the_first_line_of_each_commands_help(name: str) -> None:
    module, text = COMMANDS[name]
    command = getattr(import_module(module), name)
    assert isinstance(command, click.Command) and command.name == name
    assert command.short_help == text or (command.help or "").splitlines()[0] == text
    assert text in " ".join(ok(None, "--help").split())


def every_command() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []

    def walk(path: str, command: click.Command) -> None:
        found.append((path, command))
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command, **HELP)):
                inner = command.get_command(click.Context(command, **HELP), name)
                assert inner is not None
                walk(f"{path} {name}", inner)

    walk("", AIOKPROD)
    return [(path.strip(), command) for path, command in found]


EACH_COMMAND = pytest.mark.parametrize(
    ("path", "command"), every_command(), ids=[path or "aiokprod" for path, _ in every_command()]
)


def of_audit(command: click.Command) -> list[argparse.Action]:
    """Return the options of `audit`, which argparse has."""
    return [each for each in parser_of("audit").actions if each.option_strings] if command.name == "audit" else []


@pytest.mark.parametrize("path", [path for path, _ in every_command()])
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_each_command_has_both_spellings_of_help(path: str, option: str) -> None:
    told = ok(None, *path.split(), option)
    assert told.startswith(f"Usage: aiokprod {path}".rstrip()) and "-h, --help" in told


@EACH_COMMAND
def test_each_option_has_a_help(path: str, command: click.Command) -> None:
    assert [option.name for option in command.params if isinstance(option, click.Option) and not option.help] == []
    assert [option.dest for option in of_audit(command) if not option.help] == []


def examples_in(text: str) -> list[str]:
    """Return the lines after `Examples:`, up to an empty one."""
    _, _, after = text.partition("Examples:\n")
    return [line.strip() for line in after.partition("\n\n")[0].splitlines()]


EXAMPLES = [line for _, command in every_command() for line in examples_in(command.help or "")]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_help_is_a_valid_command_line(example: str) -> None:
    commands = [shlex.split(part) for part in example.split(" | ")]
    ours = [words for words in commands if words[0] == "aiokprod"]
    assert ours
    for _, *words in ours:
        command: click.Command = AIOKPROD
        context = click.Context(command, **HELP)
        while isinstance(command, click.Group):
            name = words.pop(0)
            found = command.get_command(context, name)
            assert found is not None, name
            command = found
        command.make_context(command.name, words)


def test_the_commands_that_people_try_first_have_examples() -> None:
    assert len(EXAMPLES) >= 15
    assert {example.partition("aiokprod ")[2].split()[0] for example in EXAMPLES} >= {
        "produce",
        "read",
        "tail",
        "doctor",
        "topics",
    }


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("nonsense",), "aiokprod: No such command 'nonsense'"),
        (("read", "t", "--nonsense"), "aiokprod read: No such option '--nonsense'"),
        (("topics", "describe"), "aiokprod topics describe: Missing argument 'TOPIC...'"),
        (("completion", "csh"), "aiokprod completion: Invalid value for '{bash|zsh|fish}': 'csh' is not one of"),
        (
            ("completion",),
            "aiokprod completion: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish. See: ",
        ),
        (("prodcue",), "aiokprod: No such command 'prodcue'. Did you mean 'produce'? See: aiokprod --help"),
        (
            ("-b", "localhost:9092", "read", "orders"),
            "aiokprod: -b comes after the command, as in 'aiokprod read ... -b ...'. See: aiokprod --help",
        ),
        (("--rate=5", "produce"), "aiokprod: --rate comes after the command, as in 'aiokprod produce ... --rate ...'"),
        (("--rate=5", "read"), "aiokprod: No such option '--rate'"),
        (
            ("topics", "-b", "x", "list"),
            "aiokprod topics: -b comes after the command, as in 'aiokprod topics list ... ",
        ),
        (("-X", "acks=1", "config", "explain"), "aiokprod: -X comes after the command, as in 'aiokprod config ... -X "),
        (("--nonsense", "read"), "aiokprod: No such option '--nonsense'"),
        (("topics", "descibe"), "aiokprod topics: No such command 'descibe'. Did you mean 'describe'? See: "),
        (("verify", "--size", "x"), "aiokprod verify: Invalid value for '--size': 'x' is not a whole number. See: "),
        (("produce", "--rate", "x"), "aiokprod produce: Invalid value for '--rate': 'x' is not a number. See: "),
    ],
)
def test_a_wrong_command_line_is_one_line_that_says_where_to_look(arguments: tuple[str, ...], line: str) -> None:
    done = run(None, *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    told = re.sub(r"No such option: (--[a-z]+)\.", r"No such option '\1'.", done.stderr)  # as click before 8.4 says it
    assert told.startswith(line) and told.endswith("--help\n")


MAY_BE_EMPTY = {
    ("produce", "--key"),
    ("produce", "--null"),
    ("read", "--grep"),
    ("read", "--grep-key"),
    ("read", "--separator"),
    ("tail", "--grep"),
    ("tail", "--grep-key"),
    ("tail", "--separator"),
    ("transactions list", "--prefix"),
}
"""options in which an empty text means something"""
NEEDED = {"read": "t", "tail": "t", "topics create": "t", "topics delete": "t", "topics describe": "t", "produce": "t"}
NEEDED |= {"transactions describe": "id", "audit": "claims"}
"""what else a command needs"""


def texts_of(path: str, command: click.Command) -> list[tuple[str, str, str]]:
    """Return (path, option or nothing, the name of the parameter in an error) of what takes a text or a path."""
    found = [(path, "", str(each.metavar)) for each in parser_of("audit").actions if not each.option_strings]
    found += [(path, each.option_strings[-1], each.option_strings[-1]) for each in of_audit(command) if each.nargs != 0]
    if command.name != "audit":
        context = click.Context(command)
        found = [
            (path, each.opts[-1], each.opts[-1])
            if isinstance(each, click.Option)
            else (path, "", each.make_metavar(context))
            for each in command.params
            if not (isinstance(each, click.Option) and each.is_flag)
        ]
    return [each for each in found if each[:2] not in MAY_BE_EMPTY | {("cluster", "")}]  # a command of the user's


@pytest.mark.parametrize(
    ("path", "option", "name"),
    [
        each
        for path, command in every_command()
        if not isinstance(command, click.Group)
        for each in texts_of(path, command)
    ],
)
def test_an_empty_value_is_one_line_that_names_the_option(path: str, option: str, name: str) -> None:
    needed = [NEEDED[path]] if path in NEEDED else []
    done = run(None, *path.split(), *([*needed, option, ""] if option else [""]), AIOKPROD_BOOTSTRAP_SERVERS="[::1]:1")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert name in done.stderr.partition(" See: ")[0]
    assert "start" not in done.stderr, "it was connected to"


@pytest.mark.parametrize("arguments", [(), ("topics",), ("config",), ("transactions",)])
def test_a_group_without_a_command_shows_its_help(arguments: tuple[str, ...]) -> None:
    done = run(None, *arguments)
    assert done.exit_code == 2
    assert done.output.startswith(" ".join(("Usage: aiokprod", *arguments))) and done.output.count("\n") > 5


@pytest.mark.parametrize("name", [path for path, command in every_command() if isinstance(command, click.Group)])
def test_no_line_of_a_list_of_commands_is_cut(name: str) -> None:
    assert "..." not in ok(None, *name.split(), "--help").partition("\nCommands:\n")[2]


def test_there_is_no_colour_where_there_is_no_terminal() -> None:
    with MockCluster(1) as cluster:
        for arguments in (("topics", "list"), ("ping",), ("doctor",), ("verify", "-n", "10")):
            assert "\x1b" not in run(cluster, *arguments).output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    script = ok(None, "completion", shell)
    assert "_AIOKPROD_COMPLETE" in script and f"{shell}_complete" in script


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("", "produce"),
        ("to", "topics"),
        ("topics de", "describe"),
        ("read --hea", "--headers"),
        ("completion z", "zsh"),
        ("audit --b", "--bootstrap"),
        ("audit claims --log dump --o", "--out"),
        ("audit -", "--help"),
    ],
)
def test_what_is_typed_is_completed(typed: str, offered: str) -> None:
    words = f"aiokprod {typed}"
    environment = {
        **os.environ, "_AIOKPROD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
    }  # fmt: skip
    command = [sys.executable, "-m", "aiokprod"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert f"plain,{offered}" in done.stdout.splitlines(), done


SHELLS = {
    "bash": """
eval "$(aiokprod completion bash)"
COMP_WORDS=(aiokprod topics cr); COMP_CWORD=2
_aiokprod_completion aiokprod
echo "${COMPREPLY[@]}"
""",
    # `_describe` is what shows the list, where a person presses Tab.
    "zsh": """
compdef() { :; }
eval "$(aiokprod completion zsh)"
_describe() { print -l -- ${(P)3}; }
words=(aiokprod topics de); CURRENT=3
_aiokprod_completion
""",
    "fish": """
aiokprod completion fish | source
complete --do-complete "aiokprod topics de"
""",
}
OFFERED = {
    "bash": ["create"],
    "zsh": ["delete:Delete", "describe:Describe"],
    "fish": ["delete\tDelete", "describe\tDescribe"],
}
"""How each line begins; zsh and fish show what a command does."""
NO_SETTINGS = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}


@pytest.mark.parametrize("shell", list(SHELLS))
def test_the_shell_itself_completes(shell: str, tmp_path: Path) -> None:
    """The script, sourced in a shell, offers what the command offers."""
    if which(shell) is None and not os.environ.get("AIOKPROD_REQUIRE_SHELLS"):
        pytest.skip(f"{shell} is not installed; AIOKPROD_REQUIRE_SHELLS=1 makes this an error")
    shim = tmp_path / "aiokprod"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m aiokprod "$@"\n')
    shim.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    command = [shell, NO_SETTINGS[shell], "-c", SHELLS[shell]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == len(OFFERED[shell]), done
    for line, begins in zip(lines, OFFERED[shell], strict=True):
        assert line.startswith(begins), done
    if shell != "bash":  # nothing of a description is cut, at a comma or for its length
        assert lines[1].endswith("Describe topics: leaders, replicas, offsets of each partition, and options.")


@pytest.mark.parametrize("option", ["-f", "--config", "--failed"])
def test_names_of_files_are_completed(option: str) -> None:
    words = f"aiokprod produce {option} re"
    environment = {**os.environ, "_AIOKPROD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    command = [sys.executable, "-m", "aiokprod"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.stdout.startswith("file,"), done


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("audit cl", "dir"),
        ("audit claims --log du", "dir"),
        ("audit claims --no-order du", "dir"),
        ("audit claims --config cl", "file"),
        ("audit claims --topic or", None),
        ("audit claims --run 1", None),
    ],
)
def test_folders_and_files_of_an_audit_are_completed(typed: str, kind: str | None) -> None:
    *words, incomplete = typed.split()
    offered = ShellComplete(AIOKPROD, {}, "aiokprod", "_AIOKPROD_COMPLETE").get_completions(words, incomplete)
    assert [each.type for each in offered] == ([] if kind is None else [kind])


def test_all_options_of_an_audit_are_offered_with_their_help() -> None:
    offered = ShellComplete(AIOKPROD, {}, "aiokprod", "_AIOKPROD_COMPLETE").get_completions(["audit"], "--")
    assert [each.value for each in offered] == [
        name for option in parser_of("audit").actions for name in option.option_strings if name.startswith("--")
    ]
    assert all(each.help for each in offered)


def test_the_help_is_paragraphs() -> None:
    lines = ok(None, "--help").splitlines()
    assert "  Examples:" in lines and "    aiokprod doctor -b localhost:9092" in lines
    assert not [line for line in lines if "     " in line.strip() and not line.startswith("  -")
                and line.split()[0] not in COMMANDS]  # fmt: skip


@EACH_COMMAND
def test_what_an_option_takes_has_a_name_and_json_has_its_letter(path: str, command: click.Command) -> None:
    options = [option for option in command.params if isinstance(option, click.Option)]
    types = (click.types.IntParamType, click.types.FloatParamType)
    assert [option.name for option in options if isinstance(option.type, types) and option.metavar is None] == []
    assert [option.opts for option in options if "--json" in option.opts and "-j" not in option.opts] == []
    takes = [option for option in of_audit(command) if option.nargs != 0]
    assert [option.dest for option in takes if not option.metavar] == []


@pytest.mark.parametrize("text", ["nan", "-nan", "inf"])
@EACH_COMMAND
def test_no_option_takes_a_number_that_is_none_or_has_no_end(path: str, command: click.Command, text: str) -> None:
    for option in command.params:
        if isinstance(option, click.Option) and isinstance(option.type, click.types.FloatParamType):
            done = run(None, *path.split(), option.opts[-1], text)
            assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
            assert f"Invalid value for '{option.opts[-1]}'" in done.stderr, done.output


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "create", "\udcff"),
        ("topics", "create", "t", "-o", "retention.ms=\udcff"),
        ("topics", "describe", "\udcff"),
        ("topics", "delete", "\udcff", "--if-there"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_told_and_not_done(words: tuple[str, ...]) -> None:
    with MockCluster(1, auto_create_topics=False, cluster_id="aiokprod-cluster-1") as cluster:
        done = run(cluster, *words)
        assert done.exit_code == 2 and done.stderr.count("\n") == 1, done.output
        assert done.stderr.endswith(": '\\xff' is not UTF-8\n")
        assert cluster.topics == {}
