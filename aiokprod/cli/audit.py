"""`aiokprod audit`: the command of `aiokprod.audit`, with the same arguments and exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="Compare what a producer claimed with what is in the log.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def audit(arguments: Sequence[str]) -> None:
    """Compare what a producer claimed with what is in the log; 0 clean, 1 findings, 2 not judged."""
    from aiokprod.audit.command import main

    sys.exit(main(arguments, "aiokprod audit"))
