"""A group of commands whose help is not cut, and which names the command that was perhaps meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

OTHER_WORDS: Final = {
    "bench": "perf", "consume": "read", "create": "topics create", "delete": "topics delete", "describe": "topics describe",
    "explain": "config explain", "get": "explain", "help": "--help", "list": "topics list", "send": "produce",
    "show": "explain", "topic": "topics", "write": "produce",
}  # fmt: skip
"""a word of other tools, and the command here, with the group that it is in"""


def meant(name: str, commands: Iterable[str]) -> str | None:
    """Return the command that was perhaps meant by `name`."""
    from difflib import get_close_matches  # not imported for commands that exist

    known = list(commands)
    other = OTHER_WORDS.get(name)
    if other is not None and other.partition(" ")[0] in ("--help", *known):
        return other
    return next(iter(get_close_matches(name, known, 1)), None)


def _has(command: click.Command | None, option: str) -> bool:
    """Return whether a command, or one of a group's, has this option."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        return any(_has(command.get_command(context, name), option) for name in command.list_commands(context))
    return command is not None and any(option in each.opts for each in command.params)


class Group(click.Group):
    """A group of commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options that stand before the command.

        Raises:
            click.UsageError: one is unknown; the message says so if it is an option of the command.
        """
        words = list(args)  # click takes its own off
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names, option = self.list_commands(ctx), error.option_name
            typed = [word for word in words if word in names][:1] or names
            name = next((name for name in typed if _has(self.get_command(ctx, name), option)), None)
            if name is None:
                raise
            raise click.UsageError(
                f"{option} comes after the command, as in '{ctx.command_path} {name} ... {option} ...'", ctx
            ) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed.

        Raises:
            click.UsageError: there is none; the message has the nearest one.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            name = args[0]
            near = None if name.startswith("-") else meant(name, self.list_commands(ctx))
            if near is None:
                raise
            raise click.UsageError(f"No such command {name!r}. Did you mean {near!r}?", ctx) from None

    def rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Return each command with the first line of its help."""
        found: list[tuple[str, Any]] = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, command.short_help or (command.help or "").partition("\n")[0]) for name, command in found]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, each with its whole line."""
        with formatter.section("Commands"):
            formatter.write_dl(self.rows(ctx))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the commands, each with its whole line; none of them is imported for that."""
        from click.shell_completion import CompletionItem

        offered = [CompletionItem(name, help=text) for name, text in self.rows(ctx) if name.startswith(incomplete)]
        return offered + click.Command.shell_complete(self, ctx, incomplete)
