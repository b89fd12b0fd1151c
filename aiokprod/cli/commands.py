"""The group of all commands. A command's module is imported when the command is used, and not for `aiokprod --help`.

So the first line of each command's help is written here too; a test compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

from aiokprod.cli.common.group import Group
from aiokprod.cli.common.help_names import HELP
from aiokprod.cli.common.interrupts import quiet_interrupt
from aiokprod.cli.common.statuses import BY_SIGNAL, NOT_DONE
from aiokprod.cli.common.texts import printable

COMMANDS: Final = {
    "produce": ("aiokprod.cli.produce", "Send records: lines, JSON, CSV, or whole files."),
    "read": ("aiokprod.cli.read", "Print the records of a topic, from a place to its end."),
    "tail": ("aiokprod.cli.read", "Print the records of a topic as they come."),
    "topics": ("aiokprod.cli.topics", "List, create, describe, alter and delete topics."),
    "groups": ("aiokprod.cli.groups", "List and describe consumer groups, with their lag."),
    "ping": ("aiokprod.cli.ping", "Ask each broker for an answer, and time it."),
    "doctor": ("aiokprod.cli.doctor", "Find out why a connection or a topic does not work."),
    "verify": ("aiokprod.cli.verify", "Send records, read them back, and compare."),
    "perf": ("aiokprod.cli.perf", "Measure throughput and latency."),
    "config": ("aiokprod.cli.config", "Explain options: meaning, value, and where it came from."),
    "transactions": ("aiokprod.cli.transactions", "List, describe and abort the transactions of a cluster."),
    "audit": ("aiokprod.cli.audit", "Compare what a producer claimed with what is in the log."),
    "cluster": (
        "aiokprod.cli.cluster",
        "Run a Kafka cluster for development in this process, until SIGINT or SIGTERM.",
    ),
    "demo": (
        "aiokprod.cli.demo",
        "Send records through the whole pipeline, break something midway, read everything back.",
    ),
    "completion": ("aiokprod.cli.completion", "Print a shell's completion script."),
}

PLAINER: Final = {
    "is not a valid integer range": "is not a whole number",
    "is not a valid integer": "is not a whole number",
    "is not a valid float range": "is not a number",
    "is not a valid float": "is not a number",
}


class Commands(Group):
    """A group whose commands are imported when they are used, and whose errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        with quiet_interrupt():
            command: click.Command = getattr(import_module(module), cmd_name)
        return command

    def rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return the commands and what they do, without importing them."""
        return [(name, text) for name, (_, text) in COMMANDS.items()]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was typed; Ctrl-C in one without an event loop of `running` ends it without a word too."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # click would write an empty line
            raise click.exceptions.Exit(BY_SIGNAL + 2) from None
        except BrokenPipeError:
            raise _unread() from None

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the command line; `--version` and `--help` print here."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError:
            raise _unread() from None

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, *more: Any, **extra: Any) -> Any:
        """Run the command line; always ends by SystemExit with the exit status."""
        extra["standalone_mode"] = False
        try:
            status = super().main(args, prog_name, *more, **extra)
        except click.ClickException as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command: the help, since click 8.2
                error.show()
                sys.exit(error.exit_code)
            context = getattr(error, "ctx", None)
            name = context.command_path if context is not None else self._path(args, prog_name)
            text = _sentence(error)
            _say(f"{name}: {text}{_where_to_look(error, name, text)}")
            sys.exit(NOT_DONE)  # click's own status is 1 for some of its errors, which means here: done
        except click.Abort:
            sys.exit(BY_SIGNAL + 2)
        except BrokenPipeError:
            from aiokprod.cli.common.running import drop

            drop(sys.stdout)
            sys.exit(BY_SIGNAL + 13)
        except OSError as error:  # our output takes nothing, as of --help: a full disk
            from aiokprod.cli.common.running import drop, line_of

            drop(sys.stdout)
            _say(f"{self._path(args, prog_name)}: {line_of(error)}")
            sys.exit(NOT_DONE)
        sys.exit(status if isinstance(status, int) else 0)

    def _path(self, args: Sequence[str] | None, prog_name: str | None) -> str:
        """Return the command that was typed: errors that are not of the command line have no context."""
        words = [prog_name or "aiokprod"]
        command: click.Command = self
        for word in sys.argv[1:] if args is None else args:
            found = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
            if found is None:
                break
            words.append(word)
            command = found
        return " ".join(words)


def _unread() -> click.exceptions.Exit:
    """Return the end of a command whose reader has ended: click would end it with 1."""
    from aiokprod.cli.common.running import PIPE, drop

    drop(sys.stdout)
    return click.exceptions.Exit(BY_SIGNAL + PIPE)


def _say(line: str) -> None:
    """Write a line to standard error; if that takes nothing, the exit status still says it."""
    try:
        click.echo(line, err=True)
    except OSError:
        from aiokprod.cli.common.running import drop

        drop(sys.stderr)


def _sentence(error: click.ClickException) -> str:
    text = printable(" ".join(error.format_message().split()), 2_000).rstrip(".")
    for words, plainer in PLAINER.items():
        text = text.replace(words, plainer)
    return text


def _where_to_look(error: click.ClickException, name: str, text: str) -> str:
    if not isinstance(error, click.UsageError):
        return ""
    return f"{'' if text.endswith('?') else '.'} See: {name} --help"


def group(version: str, message: str) -> Commands:
    """Make the group.

    Args:
        version: of the package.
        message: the answer to --version.
    """

    @click.command(cls=Commands, context_settings={**HELP, "max_content_width": 100})
    @click.version_option(version, prog_name="aiokprod", message=message)
    def aiokprod() -> None:
        """Write to Apache Kafka, read from it, and find out what is wrong with it.

        The cluster is named by -b HOST:PORT, or in AIOKPROD_BOOTSTRAP_SERVERS, or in a file (--config FILE). Options of the
        connection are set by -X NAME=VALUE. `aiokprod COMMAND --help` explains a command.

        \b
        Examples:
          aiokprod doctor -b localhost:9092
          echo 'hello' | aiokprod produce greetings -b localhost:9092
          aiokprod read greetings -b localhost:9092

        Exit status: 0 done; 1 done, and the answer is bad; 2 not done; 128 and the signal's number, as 130 after Ctrl-C.
        """

    assert isinstance(aiokprod, Commands)
    return aiokprod
