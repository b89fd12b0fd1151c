"""How `produce` makes records of lines: values, JSON, CSV."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final

from aiokprod.cli.common.record_lines import LineError, Outgoing, json_object, record_of
from aiokprod.cli.common.texts import escaped, unescaped

LONGEST_ROW_LINES: Final = 10_000


class Source(ABC):
    """A way to make records of lines."""

    @abstractmethod
    def take(self, line: bytes) -> Iterator[Outgoing]:
        """Yield the records that end with this line: one, or none yet.

        Raises:
            LineError: the line is wrong; the next one may be taken.
        """

    def end(self) -> None:
        """Check that nothing is left over.

        Raises:
            LineError: the last record is cut.
        """
        return


class Values(Source):
    """Each line is a value, or a key and a value.

    Args:
        key_separator: between key and value; None: lines have no key.
        key_field: the field of a value in JSON that is the key; None: no such field.
        null: the text of a null key or value; None: nothing is null.
        is_escaped: lines are written as `read` prints them.
        skips_empty: lines without a character are left out.
    """

    def __init__(
        self, key_separator: str | None, key_field: str | None, null: str | None, is_escaped: bool, skips_empty: bool
    ) -> None:
        self._separator = None if key_separator is None else key_separator.encode("utf-8", "surrogateescape")
        self._key_field = key_field
        self._null = None if null is None else null.encode("utf-8", "surrogateescape")
        self._is_escaped = is_escaped
        self._skips_empty = skips_empty

    def take(self, line: bytes) -> Iterator[Outgoing]:
        """Yield the record of the line."""
        if not line and self._skips_empty:
            return
        key: bytes | None = None
        if self._separator is not None:
            before, found, after = line.partition(self._separator)
            if not found:
                raise LineError(f"no '{escaped(self._separator)}' (--key-separator) between a key and a value")
            key, line = self._content(before), after
        if self._key_field is not None:
            key = field_of(json_object(line), self._key_field)
        yield Outgoing(self._content(line), key)

    def _content(self, data: bytes) -> bytes | None:
        if data == self._null:
            return None
        if not self._is_escaped:
            return data
        try:
            return unescaped(data)
        except ValueError as error:
            raise LineError(str(error)) from None


def field_of(fields: dict[str, object], name: str) -> bytes | None:
    """Return a field of an object as the bytes of a key: a text as it is, anything else as JSON.

    Raises:
        LineError: there is no such field.
    """
    if name not in fields:
        raise LineError(f"there is no field {name!r} in it")
    found = fields[name]
    if found is None:
        return None
    return (found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))).encode(
        "utf-8", "surrogatepass"
    )


class Json(Source):
    """Each line is a record in JSON, as `read --json` writes it.

    Args:
        keeps_partition: False lets the partitioner choose, whatever the line says.
    """

    def __init__(self, keeps_partition: bool) -> None:
        self._keeps_partition = keeps_partition

    def take(self, line: bytes) -> Iterator[Outgoing]:
        """Yield the record of the line."""
        if not line.strip():
            return
        found = record_of(line)
        if not self._keeps_partition:
            found = Outgoing(found.value, found.key, found.headers, found.topic, None, found.timestamp_ms)
        yield found


class Csv(Source):
    """Each row of CSV is a value: a JSON object whose names are in the first row, or one field of it.

    Args:
        delimiter: between fields.
        key_field: the column with the key; None: no key.
        value_field: the column with the value; None: the whole row.
        null: the text of a null; None: nothing is null.
    """

    def __init__(self, delimiter: str, key_field: str | None, value_field: str | None, null: str | None) -> None:
        self._delimiter = delimiter
        self._key_field = key_field
        self._value_field = value_field
        self._null = null
        self._names: list[str] | None = None
        self._open: list[str] = []
        self._quotes = 0

    def take(self, line: bytes) -> Iterator[Outgoing]:
        """Yield the record of a row, which a quoted field with a line end makes several lines long."""
        try:
            text = line.decode("utf-8" if self._names or self._open else "utf-8-sig")
        except UnicodeDecodeError:
            raise LineError("not UTF-8") from None
        self._open.append(text)
        self._quotes += text.count('"')
        if self._quotes % 2:
            if len(self._open) > LONGEST_ROW_LINES:
                self._open, self._quotes = [], 0
                raise LineError('a quote (") that does not end')
            return
        whole, self._open, self._quotes = "\n".join(self._open), [], 0
        if whole:
            yield from self._row(self._fields(whole))

    def _fields(self, text: str) -> list[str]:
        try:
            [fields] = csv.reader([text], delimiter=self._delimiter, strict=True)
        except (csv.Error, ValueError) as error:
            raise LineError(f"not CSV: {error}") from None
        return fields

    def _row(self, fields: Sequence[str]) -> Iterator[Outgoing]:
        if self._names is None:
            self._names = list(fields)
            used = self._names if self._value_field is None else [self._key_field, self._value_field]
            for name in self._names:
                if self._names.count(name) > 1 and name in used:
                    raise HeadError(f"the first row has the column {name!r} more than once")
            for asked in (self._key_field, self._value_field):
                if asked is not None and asked not in self._names:
                    one = " (is --delimiter right?)" if len(self._names) == 1 else ""
                    names = ", ".join(map(repr, self._names))
                    raise HeadError(f"the first row has no column {asked!r}; it has {names}{one}")
            return
        if len(fields) != len(self._names):
            raise LineError(
                f"{len(fields)} {'field' if len(fields) == 1 else 'fields'} where the first row has {len(self._names)}"
            )
        row = {name: None if text == self._null else text for name, text in zip(self._names, fields, strict=True)}
        key = None if self._key_field is None else _encoded(row[self._key_field])
        if self._value_field is not None:
            yield Outgoing(_encoded(row[self._value_field]), key)
        else:
            yield Outgoing(json.dumps(row, ensure_ascii=False).encode(), key)

    def end(self) -> None:
        """Check that the last quoted field has ended."""
        if self._open:
            raise LineError('a quote (") that does not end')


class HeadError(LineError):
    """The first row does not have what was asked for: no row can be sent."""


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
