"""The cases of golden/cases.txt as columns, and the batches we make of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aiokprod.records.batch import TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, batch_header, encode_records
from aiokprod.records.compression import CODEC_BITS, compress
from aiokprod.records.headers import encode_headers

GOLDEN = Path(__file__).parent / "golden"
CASES = GOLDEN / "cases.txt"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Case:
    """One batch."""

    name: str
    producer_id: int
    epoch: int
    sequence: int
    transactional: bool
    log_append_time_ms: int
    timestamps: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[list[tuple[str, bytes | None]]] = field(default_factory=list)

    def golden(self, codec: str) -> bytes:
        """Return the bytes that the Java client wrote."""
        return (GOLDEN / f"{self.name}.{codec}").read_bytes()

    def section(self) -> bytes:
        """Return our record section, without the columns that are empty."""
        return encode_records(
            self.values,
            self.keys if any(key is not None for key in self.keys) else None,
            [encode_headers(pairs) for pairs in self.headers] if any(self.headers) else None,
            [timestamp - self.timestamps[0] for timestamp in self.timestamps],
        )

    def batch(self, codec: str) -> bytes:
        """Return our batch."""
        packed = compress(codec, None, self.section())
        attributes = CODEC_BITS[codec]
        attributes |= TRANSACTIONAL_BIT if self.transactional else 0
        attributes |= TIMESTAMP_TYPE_BIT if self.log_append_time_ms >= 0 else 0
        header = batch_header(
            packed, count=len(self.values), attributes=attributes, base_timestamp_ms=self.timestamps[0],
            max_timestamp_ms=max(self.timestamps), producer_id=self.producer_id, producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )  # fmt: skip
        return header + packed


def field_bytes(text: str) -> bytes | None:
    if text == "-":
        return None
    if text == ".":
        return b""
    unit, _, count = text.partition("*")
    return bytes.fromhex(unit) * int(count or 1)


def header_pair(text: str) -> tuple[str, bytes | None]:
    name, _, value = text.partition("=")
    return (field_bytes(name) or b"").decode(), field_bytes(value)


def read_cases(path: Path = CASES) -> list[Case]:
    cases: list[Case] = []
    for line in path.read_text().splitlines():
        match line.split():
            case ["batch", name, producer_id, epoch, sequence, transactional, log_append_time]:
                cases.append(
                    Case(name, int(producer_id), int(epoch), int(sequence), transactional == "1", int(log_append_time))
                )
            case ["record", timestamp, key, value, *headers]:
                cases[-1].timestamps.append(int(timestamp))
                cases[-1].keys.append(field_bytes(key))
                cases[-1].values.append(field_bytes(value))
                cases[-1].headers.append([header_pair(pair) for pair in headers])
    return cases
