"""`PreparedTransaction`: a transaction whose records are written and whose end is left to another process. A value, pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from aiokprod.config.option_checks import shown
from aiokprod.errors import UsageError

LONGEST_TEXT: Final = 16 * 1024 * 1024
"""The most characters that `from_json` reads: about 200,000 partitions."""
LONGEST_NAME: Final = 32_767
"""The most UTF-8 bytes of a transactional id: what a string of the protocol can hold before version 3 of EndTxn."""
LAST_OFFSET: Final = 2**63 - 1
LAST_EPOCH: Final = 2**15 - 1
LAST_PARTITION: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PreparedPartition:
    """The records of a prepared transaction in one partition."""

    topic: str
    """topic name"""
    partition: int
    """partition number"""
    first_offset: int
    """offset of the first record, or -1 if no broker has told an offset"""
    last_offset: int
    """offset of the last record, or -1 if no broker has told an offset"""
    count: int
    """number of records"""

    def __post_init__(self) -> None:
        _check_text("topic", self.topic, 249)
        _check_number("partition", self.partition, 0, LAST_PARTITION)
        _check_number("first_offset", self.first_offset, -1, LAST_OFFSET)
        _check_number("last_offset", self.last_offset, self.first_offset, LAST_OFFSET)
        _check_number("count", self.count, 1, LAST_OFFSET)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments, so that what is unpickled is checked."""
        return type(self), (self.topic, self.partition, self.first_offset, self.last_offset, self.count)


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """All that `end_transaction` needs to end a transaction, from any process. Made by `Producer.prepare_transaction`.

    It can be pickled; `to_json` gives a text that later versions of aiokprod read too. It has no secret, but any process that
    has it and may write with the transactional id can end the transaction.

    Args:
        transactional_id: of the producer.
        producer_id: of the transaction.
        epoch: of the transaction.
        version: of the protocol, 1 or 2 (`transaction.version` of the cluster).
        partitions: where its records are.
        is_begun: False: nothing was written, so there is nothing to end. A transaction of offsets alone is begun.

    Raises:
        UsageError: a field has a wrong type, or a value that no transaction has.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    version: int
    partitions: tuple[PreparedPartition, ...] = ()
    is_begun: bool = True

    def __post_init__(self) -> None:
        least = 0 if self.is_begun is True else -1
        _check_text("transactional_id", self.transactional_id, LONGEST_NAME)
        _check_number("producer_id", self.producer_id, least, LAST_OFFSET)
        _check_number("epoch", self.epoch, least, LAST_EPOCH)
        _check_number("version", self.version, 1, 2)
        found: Any = self.partitions
        if not isinstance(found, tuple) or not all(isinstance(each, PreparedPartition) for each in cast("Any", found)):
            raise UsageError(f"partitions is {shown(self.partitions)}: it must be a tuple of PreparedPartition")
        if not isinstance(cast("object", self.is_begun), bool):
            raise UsageError(f"is_begun is {shown(self.is_begun)}: it must be True or False")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments, so that what is unpickled is checked: it may come from another version, or be damaged."""
        fields = (self.transactional_id, self.producer_id, self.epoch, self.version, self.partitions, self.is_begun)
        return type(self), fields

    @property
    def count(self) -> int:
        """The number of its records."""
        return sum(each.count for each in self.partitions)

    def to_json(self) -> str:
        """Return it as one line of JSON (ASCII)."""
        fields = {
            "format": 1,
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "epoch": self.epoch,
            "version": self.version,
            "is_begun": self.is_begun,
            "partitions": [
                [each.topic, each.partition, each.first_offset, each.last_offset, each.count]
                for each in self.partitions
            ],
        }
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` has made. Unknown fields are ignored.

        Args:
            text: the JSON, 16 MiB at most.

        Raises:
            UsageError: it is something else.
        """
        if not isinstance(cast("object", text), str | bytes):
            raise UsageError(f"a prepared transaction is read from str or bytes, not {type(text).__name__}")
        if len(text) > LONGEST_TEXT:
            raise UsageError(f"{len(text)} characters are too many for a prepared transaction: {LONGEST_TEXT} at most")
        try:
            fields = cast("object", json.loads(text))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"this is no prepared transaction: {error}") from None
        if not isinstance(fields, dict):
            raise UsageError(f"this is no prepared transaction, but a JSON {type(fields).__name__}")
        found = cast("dict[str, Any]", fields)
        if found.get("format") != 1:
            raise UsageError(f"this version of aiokprod reads format 1, not {shown(found.get('format'))}")
        try:
            partitions = tuple(PreparedPartition(*cast("list[Any]", each)) for each in found["partitions"])
            return cls(
                found["transactional_id"],
                found["producer_id"],
                found["epoch"],
                found["version"],
                partitions,
                found["is_begun"],
            )
        except (KeyError, TypeError) as error:
            raise UsageError(f"this is no prepared transaction: {type(error).__name__} {error}") from None


def _check_text(name: str, text: object, longest: int) -> None:
    try:
        is_right = isinstance(text, str) and 0 < len(text.encode()) <= longest
    except UnicodeEncodeError:
        is_right = False
    if not is_right:
        raise UsageError(f"{name} is {shown(text)}: it must be a text of 1 to {longest} bytes")


def _check_number(name: str, number: object, lowest: int, highest: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not lowest <= number <= highest:
        raise UsageError(f"{name} is {shown(number)}: it must be a whole number from {lowest} to {highest}")
