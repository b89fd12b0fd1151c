"""A 64-bit fingerprint of each row (key, value, headers). Pure; numpy over Arrow's buffers.

The sum of fingerprints modulo 2**64 does not depend on the order of the rows, so a reader of the records can compute it and
compare. `docs/spark.md` explains it; `row_hash` is the definition, written for one row. Not safe against adversaries.

    fold(bytes)  = len * LENGTH + sum(word[k] * WEIGHT[k])     words of 8 bytes, little endian, zeros after the last byte
    field        = mix(fold(bytes)), NULL if there is none
    headers      = sum(mix(field(name) * KEY + field(value) * VALUE + number * PLACE)), number counts from 1
    row          = mix(field(value) * VALUE + field(key) * KEY + headers * HEADERS)

Topic and partition are reported beside the sum, not mixed into it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Hashes = NDArray[np.uint64]

_MASK: Final = 2**64 - 1
_ODD: Final = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio: the step of splitmix64
NULL, LENGTH, VALUE, KEY, HEADERS, PLACE = (((2 * number + 1) * 0xD6E8FEB86659FD93) & _MASK for number in range(6))
_TAILS: Final = np.array(
    [2 ** (8 * rest) - 1 for rest in range(8)], np.uint64
)  # masks of the valid bytes of a last word
LONG_WORDS: Final = 256  # fields of more words are folded one by one, shorter ones together


def mix(number: int) -> int:
    """Spread 64 bits (the final step of splitmix64)."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def field_hash(content: bytes | None) -> int:
    """Return the hash of one field."""
    if content is None:
        return NULL
    total = len(content) * LENGTH
    for place in range(0, len(content), 8):
        total += int.from_bytes(content[place : place + 8], "little") * int(_weights(place // 8 + 1)[place // 8])
    return mix(total & _MASK)


def row_hash(value: bytes | None, key: bytes | None, headers: Iterable[tuple[bytes, bytes | None]] = ()) -> int:
    """Return the hash of one row: the definition."""
    total = field_hash(value) * VALUE + field_hash(key) * KEY
    for number, (name, content) in enumerate(headers, 1):
        total += mix((field_hash(name) * KEY + field_hash(content) * VALUE + number * PLACE) & _MASK) * HEADERS
    return mix(total & _MASK)


def row_hashes(value: Any, key: Any = None, headers: Any = None) -> Hashes:
    """Return the hashes of all rows of Arrow arrays, with nulls, sliced or not.

    Args:
        value: binary or string.
        key: the same; None: no row has a key.
        headers: list<struct<key, value>>; None: no row has headers.

    Returns:
        64 bits for each row, unsigned.
    """
    with np.errstate(over="ignore"):
        total = field_hashes(value) * _u(VALUE)
        total += field_hashes(key) * _u(KEY) if key is not None else _u(NULL * KEY)
        if headers is not None:
            total += _header_hashes(headers) * _u(HEADERS)
        return _mixed(total)


def total(hashes: Hashes) -> int:
    """Return the sum modulo 2**64: the fingerprint.

    Args:
        hashes: those of the rows, from `row_hashes`.
    """
    with np.errstate(over="ignore"):
        return int(np.sum(hashes, dtype=np.uint64))


def at_rows(hashes: Hashes, rows: Sequence[int]) -> Hashes:
    """Return the hashes of some rows: a range, or an array of numbers."""
    return hashes[rows.start : rows.stop] if isinstance(rows, range) else hashes[np.asarray(rows)]


def field_hashes(array: Any) -> Hashes:
    """Return the hash of each field of a binary or string array."""
    starts, lengths, data = _buffers(array)
    with np.errstate(over="ignore"):
        folded = lengths.astype(np.uint64) * _u(LENGTH)
        if len(starts) and len(data):
            _fold(folded, starts, lengths, data)
        hashes = _mixed(folded)
    if array.null_count:
        hashes[array.is_null().to_numpy(zero_copy_only=False)] = NULL
    return hashes


def _fold(folded: Hashes, starts: Any, lengths: Any, data: Any) -> None:
    """Add the words of each field."""
    longest = int(lengths.max(initial=0))
    if longest == int(lengths.min(initial=longest)):
        _fold_equal(folded, int(starts[0]), longest, data)
        return
    full, rest = np.divmod(lengths, 8)
    words = _words_anywhere(data)
    # First the last, incomplete words of all rows; then rows with the same number of complete words together.
    folded += (words[starts + 8 * full] & _TAILS[rest]) * _weights(int(full.max()) + 1)[full]
    order = np.argsort(full, kind="stable")
    counts, begins = np.unique(full[order], return_index=True)
    for count, rows in zip(counts, np.split(order, begins[1:]), strict=True):
        if not count:
            continue
        weights = _weights(int(count))[:count]
        if count > LONG_WORDS:
            for row in rows:
                folded[row] += np.dot(words[starts[row] : starts[row] + 8 * count : 8], weights)
        else:
            windows: Hashes = np.ndarray((len(data) + 9 - 8 * count, count), "<u8", words.base, 0, (1, 8))
            folded[rows] += np.einsum("ij,j->i", windows[starts[rows]], weights)


def _fold_equal(folded: Hashes, first: int, length: int, data: Any) -> None:
    """Fold fields of one length that follow each other: a matrix times the weights."""
    full, rest = divmod(length, 8)
    weights = _weights(full + 1)
    if full:
        words: Hashes = np.ndarray((len(folded), full), "<u8", data, first, (length, 8))
        folded += np.einsum("ij,j->i", words, weights[:full])
    if rest:
        table = data[first : first + length * len(folded)].reshape(len(folded), length)
        tail = np.zeros((len(folded), 8), np.uint8)
        tail[:, :rest] = table[:, full * 8 :]
        folded += tail.view("<u8")[:, 0] * weights[full]


def _words_anywhere(data: Any) -> Hashes:
    """Return the word that begins at each byte."""
    padded = np.concatenate((data, np.zeros(8, np.uint8)))
    words: Hashes = np.ndarray((len(data) + 1,), "<u8", padded, strides=(1,))
    return words


@cache
def _weights_up_to(power: int) -> Hashes:
    weights: Hashes = _mixed(np.arange(1, 2**power + 1, dtype=np.uint64) * _u(_ODD)) | _u(1)
    return weights


def _weights(count: int) -> Hashes:
    """Return at least `count` of WEIGHT[0], WEIGHT[1], ...; WEIGHT[k] is mix((k + 1) * 0x9E3779B97F4A7C15) made odd."""
    with np.errstate(over="ignore"):
        return _weights_up_to(max(10, (count - 1).bit_length()))


def _header_hashes(headers: Any) -> Hashes:
    """Return for each row the sum over its headers."""
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    flat = headers.flatten()  # the headers of this slice, none of null rows
    sums = np.zeros(len(headers), np.uint64)
    if not len(flat):
        return sums
    names, contents = flat.flatten()
    ends = np.cumsum(counts)
    numbers = np.arange(1, len(flat) + 1) - np.repeat(ends - counts, counts)
    each = field_hashes(names) * _u(KEY) + field_hashes(contents) * _u(VALUE) + numbers.astype(np.uint64) * _u(PLACE)
    running = np.concatenate((np.zeros(1, np.uint64), np.cumsum(_mixed(each), dtype=np.uint64)))
    sums += running[ends] - running[ends - counts]
    return sums


def _mixed(numbers: Hashes) -> Hashes:
    numbers = (numbers ^ (numbers >> _u(30))) * _u(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> _u(27))) * _u(0x94D049BB133111EB)
    numbers ^= numbers >> _u(31)
    return numbers


def _u(number: int) -> Any:
    return np.uint64(number & _MASK)


def _buffers(array: Any) -> tuple[Any, Any, Any]:
    """Return the start of each field, its length (0 for null), and the bytes."""
    wide = str(array.type).startswith("large_")
    _, offsets, data = array.buffers()
    kind, size = (np.int64, 8) if wide else (np.int32, 4)
    places = np.frombuffer(offsets, kind, len(array) + 1, array.offset * size) if len(array) else np.zeros(1, kind)
    places = places.astype(np.int64, copy=False)
    lengths = np.diff(places)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
    # Only these rows' part of the buffer: for a batch sent in pieces the whole buffer would be copied once per piece.
    first, last = int(places[0]), int(places[-1])
    content = np.frombuffer(data, np.uint8)[first:last] if data is not None else np.zeros(0, np.uint8)
    return places[:-1] - first, lengths, content
