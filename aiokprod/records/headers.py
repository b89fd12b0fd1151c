"""Record headers in the record format: their number, then name and value of each. Pure.

Headers are encoded when `send` takes them: the bytes are a copy that the caller cannot change, their size is known, and
the batch only joins them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from aiokprod.records.varint import SMALL, TABLE_TO, encode

NO_HEADERS: Final = b"\0"
NULL: Final = b"\x01"  # the length -1
KEPT_NAMES: Final = 1_000  # a program has few header names and repeats them
KEPT_NAME_BYTES: Final = 128

_names: Final[dict[str, bytes]] = {}  # name -> its length and UTF-8 bytes


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Encode pairs whose types were checked. Raises UnicodeEncodeError for a name that has no UTF-8 form."""
    parts: list[bytes] = [encode(len(headers))]
    for name, value in headers:
        parts.append(_encoded_name(name))
        if value is None:
            parts.append(NULL)
        else:
            parts.append(encode(len(value)))
            parts.append(value)
    return b"".join(parts)


def encode_plain(headers: Iterable[Iterable[object]]) -> bytes | None:
    """Encode a list or tuple of (str, bytes or None) tuples, the usual form; return None for any other form.

    The hot path of `send`: after None the caller takes the slow way, which accepts more forms and names what is wrong.
    """
    if isinstance(headers, list):
        pairs: list[Iterable[object]] = headers
    elif isinstance(headers, tuple):
        pairs = list(headers)
    else:
        return None
    parts: list[bytes] = [encode(len(pairs))]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            return None
        name: object = pair[0]
        value: object = pair[1]
        if not isinstance(name, str):
            return None
        encoded = _names.get(name)
        if encoded is None:
            if not name.isascii():
                return None
            encoded = _encoded_name(name)
        parts.append(encoded)
        if value is None:
            parts.append(NULL)
        elif type(value) is bytes:
            size = len(value)
            parts.append(SMALL[size] if size < TABLE_TO else encode(size))
            parts.append(value)
        else:
            return None
    return b"".join(parts)


def _encoded_name(name: str) -> bytes:
    known = _names.get(name)
    if known is not None:
        return known
    text = name.encode()
    encoded = encode(len(text)) + text
    if len(_names) < KEPT_NAMES and len(encoded) <= KEPT_NAME_BYTES:
        _names[name] = encoded
    return encoded
