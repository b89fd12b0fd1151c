"""`aiokprod read` and `aiokprod tail`: records on standard output, one per line."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

from aiokprod.cli.common.connection import Connection, connection_options
from aiokprod.cli.common.moments import Kind, Place, PlaceType
from aiokprod.cli.common.parameter import ParameterType, Separator, Text
from aiokprod.cli.common.reading import Found, Key, offset_of, ranges_of, records_following, records_in
from aiokprod.cli.common.record_format import FormatType, RecordFormat
from aiokprod.cli.common.record_lines import json_of
from aiokprod.cli.common.registry_values import RegistryValues, plain, text_of
from aiokprod.cli.common.running import run, tell
from aiokprod.cli.common.statuses import DONE, NOT_GOOD
from aiokprod.cli.common.texts import escaped
from aiokprod.cli.common.topic_admin import check_topics
from aiokprod.errors import UnknownTopicError
from aiokprod.reader import Reader
from aiokprod.records.decoder import DecodedRecord

CallT = TypeVar("CallT", bound=Callable[..., None])
Wanted = Callable[[DecodedRecord], bool]
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
SHOWN: Final = 5
"""partitions that a line names"""
LEFT_OUT: Final = " (--read-committed leaves out records of open and aborted transactions)"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a record is printed."""

    as_json: bool
    in_hex: bool
    raw: bool
    key: bool
    headers: bool
    place: bool
    separator: str
    form: RecordFormat | None = None

    def line(self, topic: str, partition: int, record: DecodedRecord, read: Mapping[str, Any] = NOTHING) -> bytes:
        """Return the line of a record, with its end; `read`: its key and value, as far as a registry gave their meaning."""
        if self.form is not None:
            key = text_of(read["key"]).encode() if "key" in read else None
            value = text_of(read["value"]).encode() if "value" in read else None
            return self.form.text(topic, partition, record, self._bytes, key, value)
        if self.as_json:
            text = json_of(
                topic, partition, record.timestamp_ms, record.key, record.value, record.headers,
                offset=record.offset, in_hex=self.in_hex, instead={name: plain(value) for name, value in read.items()},
            )  # fmt: skip
            return text.encode() + b"\n"
        fields: list[bytes] = []
        if self.place:
            fields.append(f"{topic}-{partition}@{record.offset}".encode())
            fields.append(_moment(record.timestamp_ms).encode())
        if self.key:
            fields.append(text_of(read["key"]).encode() if "key" in read else self._bytes(record.key))
        if self.headers:
            pairs = (escaped(name.encode()).encode() + b"=" + self._bytes(value) for name, value in record.headers)
            fields.append(b",".join(pairs))
        fields.append(text_of(read["value"]).encode() if "value" in read else self._bytes(record.value))
        return self.separator.encode("utf-8", "surrogateescape").join(fields) + b"\n"

    def _bytes(self, data: bytes | None) -> bytes:
        if self.raw:
            return data or b""
        if self.in_hex and data is not None:
            return data.hex().encode()
        return escaped(data).encode()


def _moment(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # a producer may write any number
        return f"@{timestamp_ms}"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Pattern(ParameterType["re.Pattern[bytes]"]):
    """The parameter type of a regular expression over bytes."""

    name = "REGEX"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[bytes]:
        """Compile it."""
        try:
            return re.compile(str(value).encode("utf-8", "surrogateescape"))
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


def wanted_by(grep: re.Pattern[bytes] | None, grep_key: re.Pattern[bytes] | None, headers: Sequence[str]) -> Wanted:
    """Return the filter of these options: all of them must match."""
    pairs = [
        (name, value.encode("utf-8", "surrogateescape") if equals else None)
        for name, equals, value in (h.partition("=") for h in headers)
    ]

    def is_wanted(record: DecodedRecord) -> bool:
        if grep is not None and (record.value is None or grep.search(record.value) is None):
            return False
        if grep_key is not None and (record.key is None or grep_key.search(record.key) is None):
            return False
        return all(
            any(name == there and value in (None, content) for there, content in record.headers)
            for name, value in pairs
        )

    return is_wanted


def _shared(command: CallT) -> CallT:
    """Add the options that `read` and `tail` have in common."""
    made: Any = command
    for option in reversed(
        (
            click.argument("topics", nargs=-1, required=True, type=Text(), metavar="TOPIC..."),
            click.option("-p", "--partition", "partitions", metavar="N", type=click.IntRange(0), multiple=True,
                         help="Only this partition; may be repeated."),
            click.option("-n", "--count", metavar="N", type=click.IntRange(1), help="End after so many records."),
            click.option("-j", "--json", "as_json", is_flag=True,
                         help="One JSON object per record, as `produce --json` takes it."),
            click.option("-k", "--key", is_flag=True, help="Print the key before the value."),
            click.option("-H", "--headers", is_flag=True, help="Print the headers before the value."),
            click.option("-v", "--place", is_flag=True, help="Print topic, partition, offset and time first."),
            click.option("--separator", default="\t", type=Separator(True), metavar="TEXT",
                         help="Between these; default: a tab."),
            click.option("-f", "--format", "form", type=FormatType(),
                         help="Print each record so, with kcat's tokens: %t %p %o %T %k %K %s %S %h, and \\n at the end."),
            click.option("--hex", "in_hex", is_flag=True, help="Keys, values and header values as hexadecimal digits."),
            click.option("--raw", is_flag=True, help="Bytes as they are, not escaped; not for a terminal."),
            click.option("--registry", type=Text(), metavar="URL",
                         help="Show what was written with a schema registry as JSON: Avro, JSON Schema, Protobuf."),
            click.option("--grep", type=Pattern(), help="Only records whose value matches."),
            click.option("--grep-key", type=Pattern(), help="Only records whose key matches."),
            click.option("--header", "only_headers", type=Text(), multiple=True, metavar="NAME[=VALUE]",
                         help="Only records with this header; may be repeated."),
            click.option("--read-committed", is_flag=True,
                         help="Leave out records of open and aborted transactions."),
            connection_options,
        )
    ):  # fmt: skip
        made = option(made)
    return made  # type: ignore[no-any-return]


@click.command()
@click.option(
    "--from",
    "begin",
    type=PlaceType(),
    default="beginning",
    show_default=True,
    help="Where to begin: beginning, end, an offset, -N (the last N of each partition), a time, or how long ago (10m).",
)
@click.option(
    "--to", "end", type=PlaceType(), default="end", show_default=True, help="Where to end, not included; as --from."
)
@_shared
def read(begin: Place, end: Place, **options: Any) -> None:
    """Print the records of a topic, from a place to its end.

    The end is the one that the topic has when the command begins. Records of several partitions come in the order of their
    times. A record is one line: UTF-8 as it is, what would break the line or steer a terminal escaped (\\n, \\xff), a backslash
    as \\\\, and null as \\N. With --json nothing is lost: `aiokprod read --json A | aiokprod produce --json B` copies.

    \b
    Examples:
      aiokprod read orders --from -10 --key
      aiokprod read orders --from 2h --grep error --json
      aiokprod read orders -p 0 --from 1000 --to 2000
      aiokprod read orders --json | aiokprod produce copy --json

    Exit status: 0; 1 if --count records were wanted and there were fewer; 2 not read.
    """  # fmt: skip
    _start(begin=begin, end=end, **options)


@click.command()
@click.option(
    "--from",
    "begin",
    type=PlaceType(),
    default="end",
    show_default=True,
    help="Where to begin: beginning, end, an offset, -N (the last N of each partition), a time, or how long ago (10m).",
)
@_shared
def tail(begin: Place, **options: Any) -> None:
    """Print the records of a topic as they come.

    Until Ctrl-C, or until --count records were printed. See `aiokprod read --help` for how records are shown.

    \b
    Examples:
      aiokprod tail orders
      aiokprod tail orders --from -10 --place --key

    Exit status: 0 after --count records; 130 after Ctrl-C; 2 not read.
    """
    _start(begin=begin, end=None, **options)


def _start(  # the options of both commands
    *,
    topics: Sequence[str],
    partitions: Sequence[int],
    begin: Place,
    end: Place | None,
    count: int | None,
    as_json: bool,
    key: bool,
    headers: bool,
    place: bool,
    separator: str,
    form: RecordFormat | None,
    in_hex: bool,
    raw: bool,
    registry: str | None,
    grep: re.Pattern[bytes] | None,
    grep_key: re.Pattern[bytes] | None,
    only_headers: Sequence[str],
    read_committed: bool,
    connection: Connection,
) -> None:
    if (
        end is not None
        and begin.kind is end.kind
        and begin.kind in (Kind.OFFSET, Kind.TIME)
        and begin.number > end.number
    ):
        raise click.UsageError("--from is after --to: exchange them")
    if raw and (as_json or in_hex):
        raise click.UsageError("--raw prints bytes as they are: leave --json and --hex out")
    if registry is not None and (raw or in_hex):
        raise click.UsageError("--registry shows JSON: leave --raw and --hex out")
    values = None if registry is None else RegistryValues(registry)
    for topic in topics:
        if headers and "=" in topic:  # as in `produce`, where -H takes a value
            raise click.UsageError(
                f"{topic!r} is no topic: -H shows the headers, and takes no value; --header {topic} selects records by one"
            )
    if form is not None and (as_json or key or headers or place):
        raise click.UsageError("--format says all that is printed: leave --json, --key, --headers and --place out")
    shape = Shape(as_json, in_hex, raw, key, headers, place, separator, form)
    is_wanted = wanted_by(grep, grep_key, only_headers)
    filters = [name for name, pattern in (("--grep", grep), ("--grep-key", grep_key)) if pattern is not None]
    filters += [f"--header {each}" for each in only_headers]

    async def work() -> int:
        config = connection.config()
        try:
            known = await check_topics(config, list(dict.fromkeys(topics)), connection.timeout_s, "READ")
        except UnknownTopicError as error:
            if key and len(topics) > 1:  # as in `produce`, where -k takes a value
                error.advice += " -k shows the keys, and takes no value; --grep-key REGEX selects records by them."
            raise
        async with Reader(config, timeout=connection.timeout_s) as reader:
            keys = [
                (topic, partition)
                for topic, count_of in known.items()
                for partition in sorted(set(partitions)) or range(count_of)
            ]
            ends: list[str] = []
            found = _found(reader, keys, begin, end, read_committed, ends)
            try:
                read, printed = await _print(found, shape, is_wanted, count, values)
            finally:
                if values is not None:
                    await values.close()
        if end is None or (printed and (count is None or printed >= count)):
            return DONE
        why = _why_so_few(read, printed, count, ends if end.kind is Kind.END else [], filters)
        tell(why + (LEFT_OUT if read_committed else ""))
        return DONE if count is None else NOT_GOOD

    run(work)


def _as_shown(record: DecodedRecord, fields: Mapping[str, Any]) -> DecodedRecord:
    """Return the record that the filters look at: what a registry gave the meaning of is searched as it is shown."""
    if not fields:
        return record
    key = text_of(fields["key"]).encode() if "key" in fields else record.key
    value = text_of(fields["value"]).encode() if "value" in fields else record.value
    return DecodedRecord(record.offset, record.timestamp_ms, key, value, record.headers)


def _tell_cut(key: Key) -> None:
    tell(f"{key[0]}-{key[1]} is shorter than it was (another topic of this name?): it is read from its beginning")


def _why_so_few(read: int, printed: int, count: int | None, ends: Sequence[str], filters: Sequence[str]) -> str:
    """Return why fewer records were printed than were wanted: without it nothing would tell this from a failure."""
    wanted = "no records" if not printed else f"{printed:,} of {count:,} records"
    if read > printed:
        why = f"{read - printed:,} {'does' if read - printed == 1 else 'do'} not match {' and '.join(filters)}"
        if any(":" in each and "=" not in each for each in filters):
            why += " (a header and its value are NAME=VALUE)"
    elif ends:
        why = f"{', '.join(ends[:SHOWN])}{', ...' if len(ends) > SHOWN else ''}"
    else:
        why = "there are no more between --from and --to"
    return f"{wanted}: {why}"


async def _found(
    reader: Reader, keys: Sequence[Key], begin: Place, end: Place | None, read_committed: bool, ends: list[str]
) -> AsyncGenerator[Found]:
    """Yield the records; add where each partition ends to `ends`."""
    if end is None:
        starts = {key: await offset_of(reader, key, begin, read_committed=read_committed) for key in keys}
        found = records_following(reader, starts, sys.stdout.flush, _tell_cut, read_committed=read_committed)
    else:
        ranges = await ranges_of(reader, keys, begin, end, read_committed=read_committed)
        for (topic, partition), (_, stop) in ranges.items():
            if read_committed and end.kind is Kind.END:  # else it is where the first open transaction begins
                stop = await reader.latest(topic, partition)
            ends.append(f"{topic}-{partition} ends at {stop}")
        skipped = [
            f"{topic}-{partition} begins at {start}"
            for (topic, partition), (start, _) in ranges.items()
            if begin.kind is Kind.OFFSET and start > begin.number
        ]
        if skipped:
            tell(f"earlier records are gone: {', '.join(skipped[:SHOWN])}{', ...' if len(skipped) > SHOWN else ''}")
        found = records_in(reader, ranges, read_committed=read_committed)
    async with aclosing(found) as closing:
        async for each in closing:
            yield each


async def _print(
    found: AsyncGenerator[Found], shape: Shape, is_wanted: Wanted, count: int | None, values: RegistryValues | None
) -> tuple[int, int]:
    """Print the records that are wanted, at most `count`; return how many were read, and how many printed."""
    out = sys.stdout.buffer
    read = printed = 0
    async with aclosing(found) as closing:
        async for topic, partition, record in closing:
            read += 1
            fields = NOTHING if values is None else await values.fields(topic, partition, record)
            if not is_wanted(_as_shown(record, fields)):
                continue
            out.write(shape.line(topic, partition, record, fields))
            printed += 1
            if printed == count:
                break
    out.flush()
    return read, printed
