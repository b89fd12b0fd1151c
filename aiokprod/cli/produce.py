"""`aiokprod produce`: sends what it reads, and writes out what failed, so that it can be sent again."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

import click

from aiokprod.cli.common.connection import Connection, settings_options
from aiokprod.cli.common.input_lines import InputLines
from aiokprod.cli.common.parameter import FilePath, Number, ParameterType, Separator, Text
from aiokprod.cli.common.printing import is_plain
from aiokprod.cli.common.record_lines import Headers, LineError, Outgoing, json_of
from aiokprod.cli.common.record_sources import Csv, HeadError, Json, Source, Values
from aiokprod.cli.common.running import LONGEST_LINE, advice_of, drop, line_of, run, tell
from aiokprod.cli.common.statuses import DONE, NOT_GOOD
from aiokprod.cli.common.texts import printable
from aiokprod.config import ProducerConfig
from aiokprod.config.option_checks import can_be_encoded
from aiokprod.delivery_type import Delivery
from aiokprod.errors import AiokprodError, BufferFullError, ConfigError, DeliveryTimeoutError, UsageError
from aiokprod.model import Persistence
from aiokprod.producer import Producer
from aiokprod.record_metadata import RecordMetadata

TOLD: Final = 5
"""lines that are wrong, and kinds of failures, that are told one by one"""
NOT_OF: Final = {
    "--json": ("--key-separator", "--escapes", "--skip-empty", "--key-field", "--null"),
    "--csv": ("--key-separator", "--escapes", "--skip-empty"),
    "--whole": ("--key-separator", "--escapes", "--skip-empty", "--key-field", "--null"),
}
"""options that would change nothing there: records without the key that was asked for would be sent"""
JSON_HINT: Final = ", whose lines have a key and a value of their own; without --json a line is a value"
LOOP_EVERY: Final = 500
"""records between two turns of the event loop"""
TIMED_OUT: Final = "Its line says in may_be_in_log whether it may come twice if it is sent again."
"""the advice after a delivery timeout, where failed records are written out"""


class HeaderType(ParameterType[tuple[str, bytes | None]]):
    """The parameter type `NAME=VALUE` of a header."""

    name = "NAME=VALUE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, bytes | None]:
        """Split it."""
        name, equals, text = str(value).partition("=")
        if not equals:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        if not can_be_encoded(name):  # a value may be any bytes, a name is text
            self.fail(f"{name!r} is not UTF-8", param, ctx)
        return name, text.encode("utf-8", "surrogateescape")


@dataclass(slots=True)
class Counts:
    """The numbers of records so far, by outcome."""

    read: int = 0
    acknowledged: int = 0
    failed: int = 0
    may_be_in_log: int = 0
    wrong_lines: int = 0

    def line(self) -> str:
        """Return the summary."""
        parts = [f"{self.acknowledged:,} acknowledged", f"{self.failed:,} failed"]
        if self.may_be_in_log:
            parts[-1] += f" ({self.may_be_in_log:,} of them may be in the log)"
        if self.wrong_lines:
            one = self.wrong_lines == 1
            parts.append("1 line was not a record" if one else f"{self.wrong_lines:,} lines were not records")
        return ", ".join(parts)


class Sending:
    """One run of the command.

    Args:
        producer: started.
        topic: of records that name none, or of all; None: each names its own.
        defaults: what records get that have none.
        out: where failed records are written.
        shows_offsets: write the place of each record to standard output.
    """

    def __init__(
        self, producer: Producer, topic: str | None, defaults: Outgoing, out: IO[str], shows_offsets: bool
    ) -> None:
        self.counts = Counts()
        self.reasons: Counter[str] = Counter()
        self._producer = producer
        self._topic = topic
        self._defaults = defaults
        self._out = out
        self._shows_offsets = shows_offsets
        self._broken: OSError | None = None  # of our output; raised where the command can end, not in a callback

    async def send(self, record: Outgoing) -> None:
        """Hand a record to the producer; its outcome is counted when it is there."""
        self.check()
        topic = self._topic or record.topic
        counts = self.counts
        counts.read += 1
        record = replace(
            record,
            topic=topic,
            key=self._defaults.key if record.key is None else record.key,
            headers=record.headers + self._defaults.headers,
            partition=record.partition if self._defaults.partition is None else self._defaults.partition,
        )
        if topic is None:
            self._failed(record, UsageError("the line names no topic, and TOPIC is not given"))
            return
        while True:
            try:
                delivery = self._producer.send(
                    topic,
                    record.value,
                    record.key,
                    partition=record.partition,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            except BufferFullError:
                await self._producer.ready()
                continue
            except AiokprodError as error:
                self._failed(record, error)
                return
            break
        delivery.add_done_callback(lambda done: self._done(record, done))
        if counts.read % LOOP_EVERY == 0:
            await self._producer.ready()
            await asyncio.sleep(0)

    def check(self) -> None:
        """Check that what was written has arrived.

        Raises:
            OSError: the reader of our output has ended, or the disk is full.
        """
        if self._broken is not None:
            raise self._broken

    def _write(self, out: IO[str], line: str) -> None:
        try:
            print(line, file=out)
        except OSError as error:
            self._broken = _named(error, out)

    def _done(self, record: Outgoing, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._failed(record, error)
            return
        self.counts.acknowledged += 1
        if self._shows_offsets:
            found: RecordMetadata = delivery.result()
            self._write(sys.stdout, f"{found.topic}-{found.partition}@{found.offset}")

    def _failed(self, record: Outgoing, error: AiokprodError) -> None:
        may_be = error.persistence not in (None, Persistence.NOT_PERSISTED)
        self.counts.failed += 1
        self.counts.may_be_in_log += may_be
        advice = TIMED_OUT if isinstance(error, DeliveryTimeoutError) else advice_of(error)
        reason = f"{error.message}. {advice}" if advice else error.message
        self.reasons[printable(reason, LONGEST_LINE)] += 1  # without offsets and times
        line = json_of(
            record.topic or "", record.partition, record.timestamp_ms, record.key, record.value, record.headers,
            error=error.message, may_be_in_log=may_be,
        )  # fmt: skip
        self._write(self._out, line)


class Pace:
    """The times at which records are sent: record n at n / rate seconds.

    Args:
        rate: records per second; None: as fast as they come.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._count = 0
        self._began: float | None = None

    async def wait(self) -> None:
        """Wait until the next record is due."""
        if self._rate is None:
            return
        now = asyncio.get_running_loop().time()
        if self._began is None:
            self._began = now
        due = self._began + self._count / self._rate
        self._count += 1
        if due > now:
            await asyncio.sleep(due - now)


def _bar(lines: InputLines, counts: Counts) -> tuple[AbstractContextManager[Any], Callable[[], None]]:
    """Return a bar for a terminal, and what brings it up to date; nothing where there is none, or where a person types."""
    if is_plain(sys.stderr) or lines.is_typed:
        return nullcontext(), lambda: None
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(TextColumn("{task.description}"), BarColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=lines.total_bytes)
    return bar, lambda: bar.update(task, completed=lines.read_bytes, description=counts.line())


async def _feed(lines: InputLines, source: Source, sending: Sending, pace: Pace, update: Callable[[], None]) -> None:
    """Send what is in the lines."""
    number = 0
    async for some in lines.lines():
        for line in some:
            number += 1
            try:
                records = list(source.take(line))
            except HeadError as error:
                raise ConfigError(f"line {number}: {error}") from None
            except LineError as error:
                _tell_line(sending.counts, number, error)
                continue
            for record in records:
                await pace.wait()
                await sending.send(record)
        update()
    try:
        source.end()
    except LineError as error:
        _tell_line(sending.counts, number, error)


def _tell_line(counts: Counts, number: int, error: LineError) -> None:
    counts.wrong_lines += 1
    if counts.wrong_lines <= TOLD:
        tell(f"line {number} is not sent: {error}")


async def _whole(lines: InputLines, sending: Sending, pace: Pace) -> None:
    """Send each file as one record."""
    async for content in lines.contents():
        await pace.wait()
        await sending.send(Outgoing(content))


class Produce(click.Command):
    """A command that explains a value on the command line, where none is read."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments.

        Raises:
            click.UsageError: they are wrong.
        """
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            raise click.UsageError(
                f"{error.message}: values are read from standard input, or from --file", ctx
            ) from None


@click.command(cls=Produce)
@click.argument("topic", required=False, type=Text())
@click.option(
    "-f",
    "--file",
    "files",
    type=FilePath(),  # so that shells complete it
    multiple=True,
    metavar="FILE",
    help="Read this file, - is standard input; may be repeated.",
)
@click.option("-j", "--json", "as_json", is_flag=True, help="Lines are records in JSON, as `read --json` writes them.")
@click.option(
    "--csv", "as_csv", is_flag=True, help="Rows of CSV; the first one has the names. A value is a JSON object."
)
@click.option("--whole", is_flag=True, help="Each file is one record.")
@click.option("--escapes", is_flag=True, help="Lines are written as `read` prints them: \\n, \\xff, \\N for null.")
@click.option(
    "-K",
    "--key-separator",
    type=Separator(False),
    metavar="TEXT",
    help="A line is a key, this text (\\t: a tab), and the value.",
)
@click.option(
    "--key-field", type=Text(), metavar="NAME", help="The column, or the field of a line's JSON value, that is the key."
)
@click.option("--value-field", type=Text(), metavar="NAME", help="The column of CSV that is the value.")
@click.option(
    "--delimiter",
    type=Separator(False),
    default=",",
    show_default=True,
    metavar="CHARACTER",
    help="Between fields of CSV.",
)
@click.option("--null", metavar="TEXT", help="A key, value or field with this text is null.")
@click.option("--skip-empty", is_flag=True, help="Leave empty lines out; else each is an empty value.")
@click.option("-k", "--key", metavar="TEXT", help="Key of records that have none.")
@click.option(
    "-H", "--header", "headers", type=HeaderType(), multiple=True, help="Header of every record; may be repeated."
)
@click.option("-p", "--partition", metavar="N", type=click.IntRange(0), help="Send all to this partition.")
@click.option("--repartition", is_flag=True, help="With --json: let the partitioner choose, not the line.")
@click.option("--rate", type=Number(0, min_open=True), metavar="N", help="At most N records per second.")
@click.option(
    "--failed",
    type=FilePath(dir_okay=False),
    default="-",
    metavar="FILE",
    help="Add failed records to this file, as lines for --json; default: standard output.",
)
@click.option("--offsets", is_flag=True, help="Print topic, partition and offset of each record. Needs --failed.")
@settings_options
def produce(
    topic: str | None,
    files: Sequence[str],
    as_json: bool,
    as_csv: bool,
    whole: bool,
    escapes: bool,
    key_separator: str | None,
    key_field: str | None,
    value_field: str | None,
    delimiter: str,
    null: str | None,
    skip_empty: bool,
    key: str | None,
    headers: Headers,
    partition: int | None,
    repartition: bool,
    rate: float | None,
    failed: str,
    offsets: bool,
    connection: Connection,
) -> None:
    """Send records: lines, JSON, CSV, or whole files.

    Reads standard input, or each --file, one after another. Without --json, --csv and --whole each line is a value, without its
    line end (\\n or \\r\\n).
    With --json the TOPIC may be left out: each line names its own.

    A record that fails is written as a line of JSON to standard output, or to --failed FILE, with its error, and may be sent
    again by `aiokprod produce --json`. The summary on standard error says how many were acknowledged. After Ctrl-C nothing more
    is read, and what was read is delivered; a second one gives that up.

    \b
    Examples:
      aiokprod produce orders -f lines.txt
      echo 'k1:v1' | aiokprod produce orders -K :
      aiokprod produce orders --csv --key-field id -f orders.csv
      aiokprod produce --json -f failed.jsonl

    Exit status: 0 all were acknowledged; 1 some failed, some lines were no records, or the reading broke off; 2 nothing was
    sent; 130 after Ctrl-C.
    """  # fmt: skip
    if as_json + as_csv + whole > 1:
        raise click.UsageError("--json, --csv and --whole exclude each other")
    given = {
        "--key-separator": key_separator is not None,
        "--escapes": escapes,
        "--skip-empty": skip_empty,
        "--key-field": key_field is not None,
        "--null": null is not None,
    }
    kind = "--json" if as_json else "--csv" if as_csv else "--whole" if whole else ""
    for name in NOT_OF.get(kind, ()):
        if given[name]:
            raise click.UsageError(f"{name} is not of {kind}{JSON_HINT if kind == '--json' else ''}")
    if topic is None and not as_json:
        raise click.UsageError("TOPIC is missing")
    if len(delimiter) != 1:
        raise click.UsageError("--delimiter is one character")
    if delimiter != "," and not as_csv:
        raise click.UsageError("--delimiter is of --csv")
    if key_separator is not None and key_field is not None:
        raise click.UsageError("--key-separator and --key-field exclude each other")
    if value_field is not None and not as_csv:
        raise click.UsageError("--value-field is of --csv")
    if repartition and not as_json:
        raise click.UsageError("--repartition is of --json")
    if offsets and failed == "-":
        raise click.UsageError("--offsets prints to standard output: name a file for failed records with --failed")
    if any(failed != "-" and _is_same(failed, file) for file in files):
        raise click.UsageError("--failed is a file that is read: name another one")
    if as_json:
        source: Source = Json(not repartition)
    elif as_csv:
        source = Csv(delimiter, key_field, value_field, null)
    else:
        source = Values(key_separator, key_field, null, escapes, skip_empty)
    defaults = Outgoing(
        None, None if key is None else key.encode("utf-8", "surrogateescape"), tuple(headers), None, partition
    )

    async def work() -> int:
        config = connection.config_to_send()
        with click.open_file(failed, "a", encoding="utf-8") as out:
            return await _work(config, topic, files, source, defaults, out, whole, Pace(rate), offsets)

    run(work)


def _is_same(first: str, second: str) -> bool:
    try:
        return Path(first).samefile(second)
    except OSError:  # one of them does not exist
        return False


async def _delivered(producer: Producer, config: ProducerConfig) -> None:
    """Close the producer. What was read is delivered also after Ctrl-C; only a second one gives that up."""
    closing = asyncio.ensure_future(producer.close(config.close_timeout))
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


def _named(error: OSError, out: IO[str]) -> OSError:
    """Return the error of an output with its name: that of a write has none. It is closed without a second error."""
    drop(out)
    if error.filename is None:
        error.filename = "standard output" if out.name == "<stdout>" else out.name
    return error


def _flush(out: IO[str]) -> None:
    try:
        out.flush()
    except OSError as error:
        raise _named(error, out) from None


async def _work(
    config: ProducerConfig,
    topic: str | None,
    files: Sequence[str],
    source: Source,
    defaults: Outgoing,
    out: IO[str],
    whole: bool,
    pace: Pace,
    shows_offsets: bool,
) -> int:
    lines = InputLines(files, config.max_request_size)
    if lines.is_typed:
        tell("reads what is typed here, until Ctrl-D")
    producer = await Producer(config).start(config.start_timeout)
    sending = Sending(producer, topic, defaults, out, shows_offsets)
    is_cut = is_told = False
    bar, update = _bar(lines, sending.counts)
    try:
        with bar:
            try:
                if whole:
                    await _whole(lines, sending, pace)
                else:
                    await _feed(lines, source, sending, pace, update)
            finally:
                await _delivered(producer, config)
            sending.check()
            _flush(out)
            _flush(sys.stdout)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:  # of a file that is read, or of our output
        if not sending.counts.read:
            is_told = not sending.counts.wrong_lines  # in one line
            if isinstance(error, AiokprodError | OSError):
                raise
            raise ConfigError(str(error)) from None
        tell(line_of(error))
        is_cut = True
    finally:  # also after Ctrl-C
        for reason, count in sending.reasons.most_common(TOLD):
            tell(f"{count:,} failed: {reason}")
        if not is_told:
            tell(sending.counts.line())
    return NOT_GOOD if is_cut or sending.counts.failed or sending.counts.wrong_lines else DONE
