"""Columns of records as buffers, in the layout of Apache Arrow, which is not needed: bytes with offsets, numbers, headers.

A column is checked when it is made, so that its readers need not check it: offsets ascend and lie inside the data, the bitmap
of the nulls is long enough, names of headers are not null and are UTF-8. Offsets and bitmaps in writable memory are copied
then. Data are not copied: data that change before they are sent are sent in their changed form.

    row      0      1      2
    offsets  0      5      5      9           int32 or int64, one more than rows
    data     value1        val2
    validity 1      0      1                  bits, the first row in the lowest; None: nothing is null
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from operator import index
from typing import Any, Final, SupportsIndex, cast

from aiokprod.errors import InvalidColumnError
from aiokprod.records.headers import NULL
from aiokprod.records.varint import encode

CHECKED_AT_ONCE: Final = 65_536
BYTES_TYPES: Final = {"binary": "i", "string": "i", "large_binary": "q", "large_string": "q"}
NUMBER_TYPES: Final = {"int32": "i", "int64": "q", "timestamp[ms]": "q", "timestamp[ms, tz=UTC]": "q"}


class BytesColumn:
    """A column of values or keys: row `n` is `data[offsets[n]:offsets[n + 1]]`, or null.

    Args:
        offsets: a buffer of int32 or int64: `array("i")`, `array("q")`, numpy, a memoryview.
        data: a buffer of bytes.
        validity: a bitmap, the first row its lowest bit; None: no row is null.
        offset: index of the first row, in `offsets` and in `validity`.
        length: number of rows; None: as many as there are offsets for.

    Raises:
        InvalidColumnError: the arguments do not fit together.
    """

    def __init__(
        self,
        offsets: object,
        data: object,
        validity: object = None,
        offset: SupportsIndex = 0,
        length: SupportsIndex | None = None,
    ) -> None:
        ends = _numbers(offsets, "offsets")
        offset = _whole(offset, "offset")
        self.length = _length(length, offset, max(0, len(ends) - 1), "offsets")
        self.offsets = _own(ends, offset, offset + self.length + 1 if self.length else offset)
        self.data = _bytes(data, "data")
        self.validity = _bitmap(validity, offset, self.length)
        self.bit_offset = offset & 7
        if self.length:
            _check_offsets(self.offsets, len(self.data))

    @classmethod
    def from_arrow(cls, array: Any) -> BytesColumn:
        """Make a column from an Arrow array, with the array's own buffers; data are not copied.

        Args:
            array: of type binary, string, large_binary or large_string; not chunked.

        Returns:
            The column.

        Raises:
            InvalidColumnError: the array has another type, or is chunked.
        """
        form = _form(array, BYTES_TYPES, "binary or string")
        validity, offsets, data = array.buffers()
        length: int = len(array)
        if not length or offsets is None:
            return cls(memoryview(bytes(4)).cast("i"), b"")
        return cls(_cast(offsets, form), b"" if data is None else data, validity, array.offset, length)

    def __len__(self) -> int:
        return self.length

    def is_null(self, row: int) -> bool:
        """Return True if a row is null.

        Args:
            row: its number, from 0.
        """
        return self.validity is not None and _is_unset(self.validity, self.bit_offset + row)

    def sizes(self, first: int, last: int) -> list[int]:
        """Return the size of each row in bytes; bytes that lie under a null count too.

        Args:
            first: number of the first row.
            last: number of the row after the last one.
        """
        ends: list[int] = self.offsets[first : last + 1].tolist()
        return [ends[at + 1] - ends[at] for at in range(last - first)]

    def slices(self, first: int, last: int) -> list[bytes | None]:
        """Return rows as bytes; None for a null.

        Args:
            first: number of the first row.
            last: number of the row after the last one.
        """
        if first >= last:
            return []
        ends: list[int] = self.offsets[first : last + 1].tolist()
        start = ends[0]
        data = bytes(self.data[start : ends[-1]])
        rows: list[bytes | None] = []
        at = 0
        for end in ends[1:]:
            rows.append(data[at : end - start])
            at = end - start
        validity = self.validity
        if validity is not None:
            bits = bytes(validity)
            bit = self.bit_offset + first
            for row in range(last - first):
                if not bits[bit >> 3] >> (bit & 7) & 1:
                    rows[row] = None
                bit += 1
        return rows

    def __repr__(self) -> str:
        return f"<BytesColumn of {self.length} rows>"


class IntColumn:
    """Partitions or timestamps: a buffer of int32 or int64, with nulls.

    Args:
        data: a buffer of int32 or int64.
        validity, offset, length: see `BytesColumn`.

    Raises:
        InvalidColumnError: the arguments do not fit together.
    """

    def __init__(
        self, data: object, validity: object = None, offset: SupportsIndex = 0, length: SupportsIndex | None = None
    ) -> None:
        numbers = _numbers(data, "numbers")
        offset = _whole(offset, "offset")
        self.length = _length(length, offset, len(numbers), "numbers")
        self.numbers = _own(numbers, offset, offset + self.length)
        self.validity = _bitmap(validity, offset, self.length)
        self.bit_offset = offset & 7

    @classmethod
    def from_arrow(cls, array: Any) -> IntColumn:
        """Make a column from an Arrow array, with the array's own buffers.

        Args:
            array: of type int32, int64 or timestamp("ms"); not chunked.

        Returns:
            The column.

        Raises:
            InvalidColumnError: the array has another type, or is chunked.
        """
        form = _form(array, NUMBER_TYPES, "int32, int64 or timestamp('ms')")
        validity, data = array.buffers()
        length: int = len(array)
        if not length or data is None:
            return cls(_cast(b"", form))
        return cls(_cast(data, form), validity, array.offset, length)

    @classmethod
    def of(cls, given: Any, name: str = "numbers") -> IntColumn:
        """Make a column from any argument that stands for one.

        Args:
            given: an IntColumn, which is returned as it is, an Arrow array, or a buffer of int32 or int64.
            name: name of the argument, for the text of an error.

        Returns:
            The column.

        Raises:
            InvalidColumnError: the argument is a list, a tuple or a range, or has another type of numbers.
        """
        if isinstance(given, IntColumn):
            return given
        if isinstance(given, list | tuple | range):
            raise InvalidColumnError(
                f"{name} must be a buffer of int32 or int64 (array('i', ...), array('q', ...), numpy) or an IntColumn, not"
                f" {type(cast(object, given)).__name__}"
            )
        if hasattr(given, "buffers"):
            return cls.from_arrow(given)
        return cls(given)

    def __len__(self) -> int:
        return self.length

    def is_null(self, row: int) -> bool:
        """Return True if a row is null.

        Args:
            row: its number, from 0.
        """
        return self.validity is not None and _is_unset(self.validity, self.bit_offset + row)

    def rows(self, first: int, last: int) -> list[int | None]:
        """Return rows as numbers; None for a null.

        Args:
            first: number of the first row.
            last: number of the row after the last one.
        """
        numbers: list[int | None] = list(self.numbers[first:last])
        if self.validity is not None:
            for row in range(first, last):
                if self.is_null(row):
                    numbers[row - first] = None
        return numbers

    def __repr__(self) -> str:
        return f"<IntColumn of {self.length} rows>"


class HeadersColumn:
    """A column of headers: row `n` has the headers `offsets[n]` to `offsets[n + 1]` (exclusive).

    Args:
        offsets: a buffer of int32 or int64.
        names: names of headers in UTF-8, none of them null.
        values: values of headers, as many as names; a value may be null.
        validity, offset, length: see `BytesColumn`; a row that is null has no headers.

    Raises:
        InvalidColumnError: the arguments do not fit together.
    """

    def __init__(
        self,
        offsets: object,
        names: BytesColumn,
        values: BytesColumn,
        validity: object = None,
        offset: SupportsIndex = 0,
        length: SupportsIndex | None = None,
    ) -> None:
        if not isinstance(names, BytesColumn) or not isinstance(values, BytesColumn):
            raise InvalidColumnError("names and values of headers must be BytesColumns")
        if names.length != values.length:
            raise InvalidColumnError(f"{names.length} names of headers and {values.length} values")
        ends = _numbers(offsets, "offsets")
        offset = _whole(offset, "offset")
        self.length = _length(length, offset, max(0, len(ends) - 1), "offsets")
        self.offsets = _own(ends, offset, offset + self.length + 1 if self.length else offset)
        self.validity = _bitmap(validity, offset, self.length)
        self.bit_offset = offset & 7
        self.names = names
        self.values = values
        if self.length:
            _check_offsets(self.offsets, names.length)
            _check_names(names, self.offsets)

    @classmethod
    def from_arrow(cls, array: Any) -> HeadersColumn:
        """Make a column from an Arrow array, with the array's own buffers.

        Args:
            array: of type `list<struct<key: string, value: binary>>`, the form of Spark's Kafka sink.

        Returns:
            The column.

        Raises:
            InvalidColumnError: the array has another type, is chunked, or has a header that is null.
        """
        text = str(array.type) if hasattr(array, "type") else type(array).__name__
        form = "q" if text.startswith("large_list<") else "i"
        if not text.startswith(("list<", "large_list<", "map<")):
            raise InvalidColumnError(f"headers must be a list of (key, value) structs, not {text}")
        pairs = array.values
        if str(pairs.type).split("<", maxsplit=1)[0] != "struct" or pairs.type.num_fields != 2:
            raise InvalidColumnError(f"headers must be a list of (key, value) structs, not {text}")
        if pairs.null_count:
            _check_pairs(array)
        is_turned = pairs.type.field(0).name == "value" and pairs.type.field(1).name == "key"
        names = BytesColumn.from_arrow(pairs.field(1 if is_turned else 0))
        values = BytesColumn.from_arrow(pairs.field(0 if is_turned else 1))
        validity, offsets = array.buffers()[:2]
        length: int = len(array)
        if not length or offsets is None:
            return cls(memoryview(bytes(4)).cast("i"), names, values)
        return cls(_cast(offsets, form), names, values, validity, array.offset, length)

    def __len__(self) -> int:
        return self.length

    def is_null(self, row: int) -> bool:
        """Return True if a row is null.

        Args:
            row: its number, from 0.
        """
        return self.validity is not None and _is_unset(self.validity, self.bit_offset + row)

    def bounds(self, first: int, last: int) -> list[int]:
        """Return an upper bound of the encoded size of each row's headers in bytes; 0 for a row without headers.

        Args:
            first: number of the first row.
            last: number of the row after the last one.
        """
        ends: list[int] = self.offsets[first : last + 1].tolist()
        bounds: list[int] = []
        for row in range(last - first):
            begin, end = ends[row], ends[row + 1]
            if end == begin:
                bounds.append(0)
                continue
            name_bytes: int = self.names.offsets[end] - self.names.offsets[begin]
            value_bytes: int = self.values.offsets[end] - self.values.offsets[begin]
            bounds.append(5 + 10 * (end - begin) + name_bytes + value_bytes)
        return bounds

    def encoded(self, first: int, last: int) -> list[bytes | None]:
        """Return the headers of rows, encoded as in a record; None for a row without headers.

        Args:
            first: number of the first row.
            last: number of the row after the last one.
        """
        if first >= last:
            return []
        ends: list[int] = self.offsets[first : last + 1].tolist()
        start = ends[0]
        names = self.names.slices(start, ends[-1])
        values = self.values.slices(start, ends[-1])
        rows: list[bytes | None] = []
        for row in range(last - first):
            begin, end = ends[row] - start, ends[row + 1] - start
            if begin == end or self.is_null(first + row):
                rows.append(None)
                continue
            parts: list[bytes] = [encode(end - begin)]
            for at in range(begin, end):
                name = names[at]
                assert name is not None
                parts.append(encode(len(name)))
                parts.append(name)
                value = values[at]
                if value is None:
                    parts.append(NULL)
                else:
                    parts.append(encode(len(value)))
                    parts.append(value)
            rows.append(b"".join(parts))
        return rows

    def __repr__(self) -> str:
        return f"<HeadersColumn of {self.length} rows>"


# ---------------------------------------------------------------------- checks
def _form(array: Any, forms: dict[str, str], wanted: str) -> str:
    """Return the number format of an Arrow array's buffer."""
    text = str(array.type) if hasattr(array, "type") else type(array).__name__
    if hasattr(array, "chunks"):
        raise InvalidColumnError(
            "a chunked Arrow array has no buffers of its own: join its chunks with combine_chunks()"
        )
    form = forms.get(text)
    if form is None or not hasattr(array, "buffers"):
        raise InvalidColumnError(f"an Arrow array of {wanted} is needed, not of {text}: cast it")
    return form


def _view(buffer: object, what: str) -> memoryview:
    try:
        view = memoryview(buffer)  # type: ignore[arg-type]
    except (TypeError, ValueError) as broken:
        raise InvalidColumnError(f"{what}: {broken}") from None
    if not view.c_contiguous:
        raise InvalidColumnError(f"{what} must be one contiguous piece of memory")
    return view


def _numbers(buffer: object, what: str) -> memoryview:
    view = _view(buffer, what)
    form = view.format.lstrip("@=<" if sys.byteorder == "little" else "@=>")
    if view.ndim != 1 or form not in ("i", "l", "q") or view.itemsize not in (4, 8):
        raise InvalidColumnError(
            f"{what} must be int32 or int64 (array('i'), array('q'), numpy), not format {view.format!r}: cast them"
        )
    return _cast(view, "i" if view.itemsize == 4 else "q")


def _cast(buffer: Any, form: str) -> memoryview:
    """View bytes as numbers; an incomplete number at the end is left out."""
    view = memoryview(buffer).cast("B")
    if form == "q":
        return view[: len(view) - len(view) % 8].cast("q")
    return view[: len(view) - len(view) % 4].cast("i")


def _own(view: memoryview, first: int, last: int) -> memoryview:
    """Return the numbers in memory that cannot be written to."""
    view = view[first:last]
    if view.readonly:
        return view
    return _cast(view.tobytes(), view.format)


def _bytes(buffer: object, what: str) -> memoryview:
    view = _view(buffer, what)
    if view.format not in ("B", "b", "c"):  # an array of bool in place of a bitmap, numbers in place of bytes
        raise InvalidColumnError(f"{what} must be bytes, not format {view.format!r}")
    return view if view.ndim == 1 and view.format == "B" else view.cast("B")


def _whole(number: object, what: str) -> int:
    try:
        if not isinstance(number, bool):
            return index(number)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise InvalidColumnError(f"the {what} must be an int, not {type(number).__name__}")


def _length(length: object, offset: int, there: int, what: str) -> int:
    if offset < 0:
        raise InvalidColumnError(f"the offset is {offset}")
    if length is None:
        if offset > there:
            raise InvalidColumnError(f"the offset is {offset}, but {what} are there for {there} rows")
        return there - offset
    length = _whole(length, "length")
    if length < 0 or (length and offset + length > there):
        raise InvalidColumnError(f"{length} rows from {offset} on need more {what}: they are there for {there} rows")
    return length


def _bitmap(validity: object, offset: int, length: int) -> memoryview | None:
    """Return the bitmap from the byte of the first row on; None if no row is null."""
    if validity is None:
        return None
    view = _bytes(validity, "validity")
    if len(view) * 8 < offset + length:
        raise InvalidColumnError(f"validity has {len(view) * 8} bits for {offset + length} rows")
    view = view[offset >> 3 : (offset + length + 7) >> 3]
    every = (1 << length) - 1
    if int.from_bytes(view, "little") >> (offset & 7) & every == every:
        return None
    return view if view.readonly else memoryview(view.tobytes())


def _check_offsets(offsets: memoryview, there: int) -> None:
    first: int = offsets[0]
    last: int = offsets[len(offsets) - 1]
    if first < 0 or last > there:
        raise InvalidColumnError(f"offsets go from {first} to {last}, outside of 0 to {there}")
    numpy = sys.modules.get("numpy")
    if numpy is not None and len(offsets) > 1000:
        ends = numpy.frombuffer(offsets, dtype=offsets.format)
        down = numpy.flatnonzero(ends[1:] < ends[:-1])
        if len(down):
            raise InvalidColumnError(f"offsets descend behind row {int(down[0])}")
        return
    before = first
    row = -1
    for at in range(0, len(offsets), CHECKED_AT_ONCE):
        ends_here: list[int] = offsets[at : at + CHECKED_AT_ONCE].tolist()
        for end in ends_here:
            if end < before:
                raise InvalidColumnError(f"offsets descend behind row {row}")
            before = end
            row += 1


def _check_pairs(array: Any) -> None:
    from pyarrow import compute

    flat = array.flatten()  # `array.values` also has the headers before and after a slice
    if flat.null_count:
        rows = compute.call_function("list_parent_indices", [array])
        row: int = rows[flat.is_null().index(True).as_py()].as_py()
        raise InvalidColumnError("a header is null", row=row)


def _check_names(names: BytesColumn, offsets: memoryview) -> None:
    first: int = offsets[0]
    last: int = offsets[len(offsets) - 1]
    begin: int = names.offsets[first] if names.length else 0
    end: int = names.offsets[last] if names.length else 0
    is_ascii = bytes(names.data[begin:end]).isascii()
    if is_ascii and names.validity is None:
        return
    for number in range(first, last):
        if names.is_null(number):
            raise _bad_name(number, offsets, "null")
        if not is_ascii:
            try:
                bytes(names.data[names.offsets[number] : names.offsets[number + 1]]).decode()
            except UnicodeDecodeError:
                raise _bad_name(number, offsets, "not UTF-8") from None


def _bad_name(number: int, offsets: memoryview, what: str) -> InvalidColumnError:
    """Make the error for a header's name, with the row and the position of the header in it."""
    row = bisect_right(offsets, number) - 1
    return InvalidColumnError(f"the name of header {number - offsets[row]} is {what}", row=row)


def _is_unset(validity: memoryview, bit: int) -> bool:
    byte: int = validity[bit >> 3]
    return not byte >> (bit & 7) & 1
