"""`KeptRecords`: records of one batch that failed, for `on_delivery_error` (the option `keep_failed_records`).

It refers to what the batch has anyway, its cells or its encoded section, and makes a `Record` only when that one is asked
for: one batch at a time is decoded, whatever fails at once. Nothing of it is on the way of a record that is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aiokprod.model import Record
from aiokprod.records.compression import decompress
from aiokprod.records.decoder import decode_headers, split_records
from aiokprod.records.headers import encode_headers


class KeptRecords:
    """So many records of a batch, by their index there, in its order. The values are as they stood in the batch: bytes."""

    __slots__ = (
        "_base_timestamp_ms", "_codec", "_count", "_deltas", "_headers", "_indices", "_keys", "_limit_bytes",
        "_partition", "_section", "_topic", "_values",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, base_timestamp_ms: int, indices: Sequence[int]) -> None:
        self._topic = topic
        self._partition = partition
        self._base_timestamp_ms = base_timestamp_ms
        self._indices = indices
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] | None = None
        self._headers: list[bytes | None] | None = None
        self._deltas: list[int] | None = None
        self._section: bytes | bytearray | None = None
        self._codec = "none"
        self._count = 0
        self._limit_bytes = 0

    def hold_cells(
        self,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        headers: list[bytes | None] | None,
        deltas: list[int] | None,
    ) -> None:
        """Hold the columns of the batch, in which no cell is changed any more."""
        self._values, self._keys, self._headers, self._deltas = values, keys, headers, deltas

    def hold_section(self, section: bytes | bytearray, codec: str, count: int, limit_bytes: int) -> None:
        """Hold the encoded section, which has all records of the batch."""
        self._section, self._codec, self._count, self._limit_bytes = section, codec, count, limit_bytes

    def _decode(self) -> None:
        section = self._section
        if section is not None:
            self._section = None
            plain = decompress(self._codec, bytes(section), self._limit_bytes)
            values, keys, pairs, deltas = split_records(plain, self._count)
            headers = None if pairs is None else [None if each is None else encode_headers(each) for each in pairs]
            self.hold_cells(values, keys, headers, deltas)

    def __iter__(self) -> Iterator[Record]:
        self._decode()
        keys, headers, deltas = self._keys, self._headers, self._deltas
        for index in self._indices:
            encoded = None if headers is None else headers[index]
            yield Record(
                value=self._values[index],
                key=None if keys is None else keys[index],
                topic=self._topic,
                partition=self._partition,
                headers=() if encoded is None else decode_headers(encoded),
                timestamp_ms=self._base_timestamp_ms + (0 if deltas is None else deltas[index]),
            )
