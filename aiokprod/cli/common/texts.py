r"""Bytes as text, in a form that can be read back, and that keeps a record on its line and a terminal as it is.

UTF-8 is shown as it is. A backslash, a character that cannot be printed, and bytes that are not UTF-8 are escaped: `\\`, `\n`,
`\t`, `\r`, `\xff` (always a byte, never a code point). Null is `\N`, which no bytes give.
"""

from __future__ import annotations

import re
from typing import Final

from aiokprod import logs

NULL: Final = "\\N"
_SHORT: Final = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_LONG: Final = {text[1]: character.encode() for character, text in _SHORT.items()}
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.|\Z)", re.DOTALL)
_KEPT_BYTE: Final = re.compile(r"\\udc([89a-f][0-9a-f])")


def printable(text: object, limit: int = logs.TEXT_LIMIT) -> str:
    """Return a text that does not steer a terminal; bytes that are not UTF-8 as `\\xff`, not as Python keeps them.

    Args:
        text: any text, or an object.
        limit: number of characters of it that are shown.
    """
    return _KEPT_BYTE.sub(r"\\x\1", logs.printable(text, limit))


def escaped(data: bytes | None) -> str:
    """Return bytes as one line of printable text."""
    if data is None:
        return NULL
    text = data.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    short = _SHORT.get(character)
    if short is not None:
        return short
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def unescaped(line: bytes) -> bytes | None:
    """Return the bytes that `escaped` made the line of.

    Raises:
        ValueError: a backslash begins no escape.
    """
    if line == NULL.encode():
        return None

    def meaning(match: re.Match[bytes]) -> bytes:
        code = match[1].decode("latin-1")
        if len(code) == 3:
            return bytes([int(code[1:], 16)])
        if code not in _LONG:
            raise ValueError(f"\\{code} is no escape: the escapes are \\\\ \\n \\t \\r \\xHH, and \\N alone for null")
        return _LONG[code]

    return _ESCAPE.sub(meaning, line)


def printable_json(line: str) -> str:
    """Return JSON that a terminal shows as it is: what cannot be printed becomes an escape of JSON."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else _json_escape(c) for c in line)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
