"""`aiokprod audit`: the command of `aiokprod.audit`, with the same arguments and exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import argparse

    from click.shell_completion import CompletionItem

KINDS = {"CLAIMS": "dir", "FOLDER": "dir", "FILE": "file"}
"""what a shell offers for an argument, by its name in the help"""


def _actions() -> list[argparse.Action]:
    from aiokprod.audit.command import parser_of

    return parser_of("aiokprod audit").actions


def _values(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the value of the option before it, or CLAIMS: names of files and folders come from the shell."""
    from click.shell_completion import CompletionItem

    before = next(iter(reversed(context.params.get("arguments") or ())), "")
    takes = {name: each for each in _actions() for name in each.option_strings if each.nargs != 0}
    metavar = takes[before].metavar if before in takes else "CLAIMS"
    return [CompletionItem(incomplete, type=KINDS[metavar])] if isinstance(metavar, str) and metavar in KINDS else []


class Audit(click.Command):
    """A command whose options are those of argparse, which click does not know."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the options, each with its help."""
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=each.help)
            for each in _actions()
            for name in each.option_strings
            if name.startswith("--") and name.startswith(incomplete)
        ]


@click.command(
    cls=Audit,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="Compare what a producer claimed with what is in the log.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=_values)
def audit(arguments: Sequence[str]) -> None:
    """Compare what a producer claimed with what is in the log; 0 clean, 1 findings, 2 not judged."""
    from aiokprod.audit.command import main

    sys.exit(main(arguments, "aiokprod audit"))
