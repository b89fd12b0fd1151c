"""Tables, lines of JSON, and what a terminal gets: colour and bars there only, and not with NO_COLOR."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from aiokprod.cli.common.texts import printable, printable_json


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table: columns aligned, nothing that would steer a terminal."""
    table = [list(head), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_json(found: Mapping[str, Any]) -> None:
    """Print a JSON object on a line of its own."""
    click.echo(printable_json(json.dumps(found, ensure_ascii=False)))


def is_plain(stream: Any) -> bool:
    """Return whether a stream gets no colour: it is no terminal, or NO_COLOR is set (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb" or not stream.isatty()


def styled(text: str, **style: Any) -> str:
    """Return a text for standard output, coloured if it is a terminal."""
    return text if is_plain(sys.stdout) else click.style(text, **style)
