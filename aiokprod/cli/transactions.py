"""`aiokprod transactions`: lists and describes transactions, finds those that hang, and aborts.

Exit status: 0 done; 1 something hangs, or what was to be aborted is committed; 2 nothing was found out or done, and one line on
standard error says why.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Final, TypeVar

import click

from aiokprod.config.command_line import config_of, given_options
from aiokprod.errors import AiokprodError
from aiokprod.logs import printable
from aiokprod.model import TransactionOutcome
from aiokprod.transactions.admin import LONGEST_TIMEOUT_S, TransactionAdmin
from aiokprod.transactions.hanging import STATES, HangingTransaction

CallT = TypeVar("CallT", bound=Callable[..., None])
FOUND: Final = 1
NOT_DONE: Final = 2
Work = Callable[[TransactionAdmin], Coroutine[Any, Any, int]]


@click.group(short_help="List, describe and abort the transactions of a cluster.")
def transactions() -> None:
    """List, describe and abort the transactions of a cluster (KIP-664)."""


def _connection(command: CallT) -> CallT:
    """Add the options of the connection."""
    for option in (
        click.option("-X", "pairs", multiple=True, metavar="NAME=VALUE", help="An option of the connection."),
        click.option("--timeout", type=click.FloatRange(0, 86_400), default=30.0, show_default=True, help="Seconds."),
        click.option("--config", "file", type=click.Path(), help="A file of options, such as client.properties."),
        click.option("-b", "--bootstrap", metavar="HOST:PORT,...", help="The servers to connect to."),
    ):
        command = option(command)
    return command


_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


def _run(work: Work, bootstrap: str | None, file: str | None, pairs: Sequence[str], timeout: float) -> None:
    """Run the work with a connected client; end the process with its exit status."""

    async def whole() -> int:
        config = config_of(given_options(bootstrap, file, pairs))
        async with TransactionAdmin(config, timeout=timeout) as admin:
            return await work(admin)

    try:
        status = asyncio.run(whole())
    except AiokprodError as error:
        click.echo(f"aiokprod transactions: {printable(str(error).partition(chr(10))[0])}", err=True)
        status = NOT_DONE
    sys.exit(status)


def _print(rows: Iterable[Sequence[object]], head: Sequence[str]) -> None:
    """Print a table: columns aligned, nothing that would steer a terminal."""
    table = [list(head), *([printable(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    for line in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@transactions.command("list")
@click.option("--prefix", default="", help="Only transactional ids that begin with it.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only ids in this state.")
@_JSON
@_connection
def list_command(
    prefix: str,
    states: Sequence[str],
    as_json: bool,
    bootstrap: str | None,
    file: str | None,
    pairs: Sequence[str],
    timeout: float,
) -> None:
    """List the transactional ids that the coordinators know."""

    async def work(admin: TransactionAdmin) -> int:
        found = await admin.transactional_ids(prefix, states=states)
        if as_json:
            for each in found:
                click.echo(json.dumps(asdict(each)))
        else:
            rows = [(each.transactional_id, each.state, each.producer_id, each.coordinator) for each in found]
            _print(rows, ("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"))
        return 0

    _run(work, bootstrap, file, pairs, timeout)


@transactions.command("describe")
@click.argument("transactional_ids", nargs=-1, required=True)
@_JSON
@_connection
def describe_command(
    transactional_ids: Sequence[str],
    as_json: bool,
    bootstrap: str | None,
    file: str | None,
    pairs: Sequence[str],
    timeout: float,
) -> None:
    """Describe transactional ids and their open transactions."""

    async def work(admin: TransactionAdmin) -> int:
        found = [await admin.describe(name) for name in transactional_ids]
        if as_json:
            for each in found:
                click.echo(json.dumps(asdict(each)))
            return 0
        rows = [
            (
                each.transactional_id,
                each.state,
                each.producer_id,
                each.epoch,
                each.timeout_ms,
                "-" if each.started_ms is None else each.started_ms,
                ",".join(f"{topic}-{number}" for topic, number in each.partitions) or "-",
            )
            for each in found
        ]
        head = ("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "EPOCH", "TIMEOUT MS", "STARTED MS", "PARTITIONS")
        _print(rows, head)
        return 0

    _run(work, bootstrap, file, pairs, timeout)


@transactions.command("find-hanging")
@click.option("--topic", "topics", multiple=True, help="Only in this topic; may be repeated. Without it: in all.")
@click.option(
    "--older-than",
    type=click.FloatRange(0, 1e9),
    default=LONGEST_TIMEOUT_S,
    show_default=True,
    help="Only if the producer wrote nothing for so many seconds.",
)
@_JSON
@_connection
def find_hanging_command(
    topics: Sequence[str],
    older_than: float,
    as_json: bool,
    bootstrap: str | None,
    file: str | None,
    pairs: Sequence[str],
    timeout: float,
) -> None:
    """Find open transactions that no coordinator will end; exit status 1 if there are any."""

    async def work(admin: TransactionAdmin) -> int:
        found = await admin.find_hanging(topics or None, older_than=older_than)
        if as_json:
            for each in found:
                click.echo(json.dumps(asdict(each.open) | {"transactional_id": each.transactional_id}))
        elif found:
            rows = [
                (
                    each.open.topic,
                    each.open.partition,
                    each.open.start_offset,
                    each.open.producer_id,
                    each.open.epoch,
                    "-" if each.transactional_id is None else each.transactional_id,
                )
                for each in found
            ]
            _print(rows, ("TOPIC", "PARTITION", "OFFSET", "PRODUCER ID", "EPOCH", "TRANSACTIONAL ID"))
        return FOUND if found else 0

    _run(work, bootstrap, file, pairs, timeout)


@transactions.command("abort")
@click.option("--id", "transactional_id", help="Abort the open transaction of this transactional id.")
@click.option("--topic", help="Abort the hanging transaction in this topic, with --partition and --offset.")
@click.option("--partition", type=click.IntRange(0), help="Its partition.")
@click.option("--offset", type=click.IntRange(0), help="Its first offset, as find-hanging shows it.")
@click.option("--yes", is_flag=True, help="Do it; without this option the command only says what it would do.")
@_connection
def abort_command(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    yes: bool,
    bootstrap: str | None,
    file: str | None,
    pairs: Sequence[str],
    timeout: float,
) -> None:
    """Abort the open transaction of an id, or a hanging one by its place."""
    place = (topic, partition, offset)
    has_place, has_part = None not in place, place != (None, None, None)
    if has_place is (transactional_id is not None) or has_place is not has_part:
        raise click.UsageError("give either --id, or --topic, --partition and --offset")

    async def by_id(admin: TransactionAdmin) -> int:
        assert transactional_id is not None
        if not yes:
            found = await admin.describe(transactional_id)
            name, state = printable(transactional_id), printable(found.state)
            return _only_said(
                f"would abort the open transaction of {name}"
                if found.is_open
                else f"{name} is {state}: nothing is open"
            )
        outcome = await admin.abort(transactional_id)
        click.echo(f"{printable(transactional_id)}: {outcome.value}")
        return 0 if outcome is TransactionOutcome.ABORTED else FOUND

    async def by_place(admin: TransactionAdmin) -> int:
        assert topic is not None
        hanging = await _hanging_at(admin, topic, partition, offset)
        if hanging is None:
            return _only_said(f"nothing hangs in {printable(topic)}-{partition} at offset {offset}")
        if not yes:
            return _only_said(f"would abort {printable(str(hanging))}")
        await admin.abort_hanging(hanging)
        click.echo(f"{printable(str(hanging))}: aborted")
        return 0

    _run(by_place if transactional_id is None else by_id, bootstrap, file, pairs, timeout)


async def _hanging_at(
    admin: TransactionAdmin, topic: str, partition: int | None, offset: int | None
) -> HangingTransaction | None:
    """Find it again: what its coordinator still knows is not hanging, and is aborted by its id."""
    for each in await admin.find_hanging([topic], older_than=0):
        if (each.open.partition, each.open.start_offset) == (partition, offset):
            return each
    return None


def _only_said(text: str) -> int:
    hint = "; add --yes to do it" if text.startswith("would") else ""
    click.echo(f"aiokprod transactions: {text}{hint}", err=True)
    return NOT_DONE
