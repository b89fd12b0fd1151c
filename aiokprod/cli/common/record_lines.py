"""A record as a line of JSON, and back: what `read --json` writes is what `produce --json` sends.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1764000000000, "key": "k", "value": "v",
     "headers": [["trace", "1"], ["trace", null]]}

A key, a value or a header is a text if its bytes are UTF-8, else {"base64": "..."}; null is null. Headers are pairs: a name may
come twice, and their order counts.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from aiokprod.cli.common.texts import printable_json

Headers = tuple[tuple[str, bytes | None], ...]
READ_BACK: Final = ("topic", "partition", "timestamp", "key", "value", "headers")
TOLD_ONLY: Final = ("offset", "error", "may_be_in_log")
"""fields that are written for the reader, and not sent"""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to send."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    topic: str | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class LineError(ValueError):
    """A line of the input is not a record; the text says what is wrong."""


def json_of(
    topic: str,
    partition: int | None,
    timestamp_ms: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    *,
    offset: int | None = None,
    in_hex: bool = False,
    instead: Mapping[str, object] | None = None,
    **told: object,
) -> str:
    """Return the line of a record, without its end.

    Args:
        topic: topic name.
        partition: partition number; None: none was chosen.
        timestamp_ms: milliseconds since 1970; None or -1: the record has none.
        key: bytes, or None.
        value: bytes, or None.
        headers: pairs of name and bytes or None.
        offset: place in the partition; None leaves the field out.
        in_hex: bytes that are not UTF-8 as {"hex": ...} instead of {"base64": ...}; and UTF-8 too.
        instead: fields that are written in place of those of these names.
        **told: more fields, which `produce` leaves alone.
    """
    fields: dict[str, object] = {"topic": topic, "partition": partition}
    if offset is not None:
        fields["offset"] = offset
    fields["timestamp"] = None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms
    fields["key"] = _content(key, in_hex)
    fields["value"] = _content(value, in_hex)
    fields["headers"] = [[name, _content(content, in_hex)] for name, content in headers]
    return printable_json(json.dumps(fields | dict(instead or {}) | told, ensure_ascii=False))


def _content(data: bytes | None, in_hex: bool) -> object:
    if data is None:
        return None
    if in_hex:
        return {"hex": data.hex()}
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def record_of(line: bytes | str) -> Outgoing:
    """Return the record that a line of JSON describes.

    Raises:
        LineError: it is no such line. An unknown field is an error too: with a misspelled `value` a tombstone would be sent.
    """
    found = json_object(line)
    unknown = [name for name in found if name not in (*READ_BACK, *TOLD_ONLY)]
    if unknown:
        raise LineError(
            f"the field {unknown[0]!r} is unknown: the fields are {', '.join(READ_BACK)}; without --json a line is a value"
        )
    if "value" not in found:
        raise LineError("the field 'value' is missing: write null for a tombstone")
    return Outgoing(
        value=_bytes("value", found["value"]),
        key=_bytes("key", found.get("key")),
        headers=_headers(found.get("headers")),
        topic=_text("topic", found.get("topic")),
        partition=_number("partition", found.get("partition")),
        timestamp_ms=_number("timestamp", found.get("timestamp")),
    )


def json_object(line: bytes | str) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        LineError: it is not one.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {_why(error)}") from None
    if not isinstance(found, dict):
        raise LineError("not a JSON object: a line is {...}")
    return cast("dict[str, Any]", found)


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def _bytes(name: str, given: object) -> bytes | None:
    if given is None:
        return None
    try:
        if isinstance(given, str):
            return given.encode()
        if isinstance(given, dict) and len(given := cast("dict[str, object]", given)) == 1:
            [(kind, text)] = given.items()
            if kind == "base64" and isinstance(text, str):
                return base64.b64decode(text, validate=True)
            if kind == "hex" and isinstance(text, str):
                return bytes.fromhex(text)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        pass
    raise LineError(f'{name} must be a text, null, {{"base64": "..."}} or {{"hex": "..."}}')


def _headers(given: object) -> Headers:
    if given is None:
        return ()
    if isinstance(given, dict):
        given = list(cast("dict[str, object]", given).items())
    pairs: list[tuple[str, bytes | None]] = []
    for pair in cast("list[object]", given) if isinstance(given, list) else [None]:
        items = list(cast("Sequence[object]", pair)) if isinstance(pair, list | tuple) else []
        if len(items) != 2 or not isinstance(items[0], str):
            raise LineError("headers must be a list of [name, value], or an object")
        pairs.append((items[0], _bytes("a header", items[1])))
    return tuple(pairs)


def _text(name: str, given: object) -> str | None:
    if given is None or isinstance(given, str):
        return given
    raise LineError(f"{name} must be a text")


def _number(name: str, given: object) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    raise LineError(f"{name} must be a whole number")
