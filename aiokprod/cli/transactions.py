"""`aiokprod transactions`: lists and describes transactions, finds those that hang, and aborts.

Exit status: 0 done; 1 something hangs, or what was to be aborted is committed; 2 nothing was found out or done, and one line on
standard error says why.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

import click

from aiokprod.cli.common.connection import Connection, connection_options
from aiokprod.cli.common.group import Group
from aiokprod.cli.common.help_names import HELP
from aiokprod.cli.common.parameter import Number, Text
from aiokprod.cli.common.printing import print_table
from aiokprod.cli.common.running import run, tell
from aiokprod.cli.common.statuses import NOT_DONE, NOT_GOOD
from aiokprod.cli.common.texts import printable
from aiokprod.cli.common.topic_admin import check_topics
from aiokprod.errors import BrokerAnswerError
from aiokprod.model import TransactionOutcome
from aiokprod.transactions.admin import LONGEST_TIMEOUT_S, TransactionAdmin
from aiokprod.transactions.hanging import STATES, HangingTransaction, TransactionDescription
from aiokprod.wire.codes import ErrorCode

FOUND: Final = NOT_GOOD
Work = Callable[[TransactionAdmin], Coroutine[Any, Any, int]]


@click.group(cls=Group, context_settings=HELP, short_help="List, describe and abort the transactions of a cluster.")
def transactions() -> None:
    """List, describe and abort the transactions of a cluster (KIP-664)."""


_JSON = click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per line.")


def _run(work: Work, connection: Connection, topics: Sequence[str] = ()) -> None:
    """Run the work with a connected client, if these topics exist; end the process with its exit status."""

    async def whole() -> int:
        config = connection.config()
        if topics:
            await check_topics(config, topics, connection.timeout_s, "READ")
        admin = TransactionAdmin(config, timeout=connection.timeout_s)
        try:
            await admin.start(config.start_timeout)  # a person waits, and --timeout is for requests
            return await work(admin)
        finally:
            await admin.close()

    run(whole)


@transactions.command("list")
@click.option("--prefix", default="", help="Only transactional ids that begin with it.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar=f"[{'|'.join(STATES)}]",
    help="Only ids in this state.",
)
@_JSON
@connection_options
def list_command(
    prefix: str,
    states: Sequence[str],
    as_json: bool,
    connection: Connection,
) -> None:
    """List the transactional ids that the coordinators know."""

    async def work(admin: TransactionAdmin) -> int:
        found = await admin.transactional_ids(prefix, states=states)
        if as_json:
            for each in found:
                click.echo(json.dumps(asdict(each)))
        else:
            rows = [(each.transactional_id, each.state, each.producer_id, each.coordinator) for each in found]
            print_table(("TRANSACTIONAL ID", "STATE", "PRODUCER ID", "COORDINATOR"), rows)
        return 0

    _run(work, connection)


@transactions.command("describe")
@click.argument("transactional_ids", nargs=-1, required=True, type=Text(), metavar="TRANSACTIONAL_ID...")
@_JSON
@connection_options
def describe_command(
    transactional_ids: Sequence[str],
    as_json: bool,
    connection: Connection,
) -> None:
    """Describe transactional ids and their open transactions."""

    async def work(admin: TransactionAdmin) -> int:
        found = [await _described(admin, name) for name in transactional_ids]
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
        print_table(head, rows)
        return 0

    _run(work, connection)


@transactions.command("find-hanging")
@click.option(
    "--topic", "topics", type=Text(), multiple=True, help="Only in this topic; may be repeated. Without it: in all."
)
@click.option(
    "--older-than",
    metavar="SECONDS",
    type=Number(0, 1e9),
    default=LONGEST_TIMEOUT_S,
    show_default=True,
    help="Only if the producer wrote nothing for so many seconds.",
)
@_JSON
@connection_options
def find_hanging_command(
    topics: Sequence[str],
    older_than: float,
    as_json: bool,
    connection: Connection,
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
            print_table(("TOPIC", "PARTITION", "OFFSET", "PRODUCER ID", "EPOCH", "TRANSACTIONAL ID"), rows)
        else:
            tell("nothing hangs")
        return FOUND if found else 0

    _run(work, connection, topics)


@transactions.command("abort")
@click.option("--id", "transactional_id", type=Text(), help="Abort the open transaction of this transactional id.")
@click.option(
    "--topic", type=Text(), help="Abort the hanging transaction in this topic, with --partition and --offset."
)
@click.option("--partition", metavar="N", type=click.IntRange(0), help="Its partition.")
@click.option("--offset", metavar="N", type=click.IntRange(0), help="Its first offset, as find-hanging shows it.")
@click.option("--yes", is_flag=True, help="Do it; without this option the command only says what it would do.")
@connection_options
def abort_command(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    yes: bool,
    connection: Connection,
) -> None:
    """Abort the open transaction of an id, or a hanging one by its place."""
    place = (topic, partition, offset)
    has_place, has_part = None not in place, place != (None, None, None)
    if has_place is (transactional_id is not None) or has_place is not has_part:
        raise click.UsageError("give either --id, or --topic, --partition and --offset")

    async def by_id(admin: TransactionAdmin) -> int:
        assert transactional_id is not None
        if not yes:
            found = await _described(admin, transactional_id)
            name, state = printable(transactional_id), printable(found.state)
            return _only_said(
                f"would abort the open transaction of {name}"
                if found.is_open
                else f"{name} is {state}: nothing is open"
            )
        with _known_ids():
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

    _run(by_place if transactional_id is None else by_id, connection, () if topic is None else (topic,))


async def _described(admin: TransactionAdmin, transactional_id: str) -> TransactionDescription:
    """Describe an id.

    Raises:
        AiokprodError: the coordinator does not; for an id that it does not know, with the commands that help.
    """
    with _known_ids():
        return await admin.describe(transactional_id)


@contextmanager
def _known_ids() -> Generator[None]:
    """Give the error of an id that is not known the commands that help."""
    try:
        yield
    except BrokerAnswerError as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            error.advice = (
                "`aiokprod transactions list` shows the ids. A transaction that hangs belongs to no id that is known:"
                " `aiokprod transactions find-hanging` finds it."
            )
        raise


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
    tell(f"{text}{hint}")
    return NOT_DONE
