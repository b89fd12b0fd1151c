r"""`RecordFormat`: how `read -f FORMAT` prints a record: kcat's tokens, and the escapes `\n`, `\t`, `\r`, `\\` and `\xHH`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import click

from aiokprod.cli.common.parameter import EMPTY, ParameterType
from aiokprod.cli.common.texts import escaped
from aiokprod.records.decoder import DecodedRecord

TOKENS: Final = "%t %p %o %T %k %K %s %S %h %R %%"
NO_BYTES: Final = -1
"""the length of null, as kcat has it"""
_PART: Final = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}

Show = Callable[[bytes | None], bytes]


class RecordFormat:
    """A format, made ready for many records.

    Args:
        text: with tokens and escapes.

    Raises:
        ValueError: one of them is unknown; the text says which there are.
    """

    def __init__(self, text: str) -> None:
        self._parts: list[bytes | str] = []
        for match in _PART.finditer(text):
            found = match[0]
            if found.startswith("%"):
                if found == "%%":
                    self._parts.append(b"%")
                elif found in TOKENS.split():
                    self._parts.append(match[1])
                else:
                    raise ValueError(f"{found} is no token: the tokens are {TOKENS}")
            elif found.startswith("\\"):
                code = match[2]
                if len(code) == 3:
                    self._parts.append(bytes([int(code[1:], 16)]))
                elif code in _ESCAPES:
                    self._parts.append(_ESCAPES[code])
                else:
                    raise ValueError(f"{found} is no escape: the escapes are \\n \\t \\r \\\\ \\xHH")
            else:
                self._parts.append(found.encode("utf-8", "surrogateescape"))

    def text(
        self,
        topic: str,
        partition: int,
        record: DecodedRecord,
        show: Show,
        key: bytes | None = None,
        value: bytes | None = None,
    ) -> bytes:
        """Return what is printed of a record.

        Args:
            topic: topic name.
            partition: partition number.
            record: the record.
            show: makes of bytes what is printed of them.
            key: what is printed of the key; None: what `show` makes of it.
            value: what is printed of the value; None: what `show` makes of it.
        """
        out: list[bytes] = []
        for part in self._parts:
            match part:
                case bytes():
                    out.append(part)
                case "t":
                    out.append(topic.encode())
                case "p":
                    out.append(b"%d" % partition)
                case "o":
                    out.append(b"%d" % record.offset)
                case "T":
                    out.append(b"%d" % record.timestamp_ms)
                case "k":
                    out.append(show(record.key) if key is None else key)
                case "K":
                    out.append(b"%d" % _length(record.key))
                case "s":
                    out.append(show(record.value) if value is None else value)
                case "S":
                    out.append(b"%d" % _length(record.value))
                case "R":
                    out.append(_length(record.value).to_bytes(4, "big", signed=True))
                case _:  # "h"
                    pairs = (escaped(name.encode()).encode() + b"=" + show(content) for name, content in record.headers)
                    out.append(b",".join(pairs))
        return b"".join(out)


def _length(data: bytes | None) -> int:
    return NO_BYTES if data is None else len(data)


class FormatType(ParameterType[RecordFormat]):
    """The parameter type of a format."""

    name = "FORMAT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> RecordFormat:
        """Read it."""
        if not value:
            self.fail(EMPTY, param, ctx)
        try:
            return RecordFormat(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
