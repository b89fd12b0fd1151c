"""`Partitioner`: the full form of a user's partitioner, one that sees whole records; and which form a function has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from aiokprod.config.option_checks import takes

KeyPartitioner: TypeAlias = "Callable[[bytes | None, Sequence[int], Sequence[int]], int]"
"""The short form: `(key, all_partitions, available_partitions) -> partition`."""


class Partitioner(Protocol):
    """The full form of a partitioner: a plain function of five arguments, or an object that is called so.

        def by_size(topic, key, value, all_partitions, available_partitions):
            return all_partitions[-1] if value is not None and len(value) > 100_000 else available_partitions[0]

        Producer("localhost:9092", partitioner=by_size)

    One of three arguments, `(key, all_partitions, available_partitions)`, is enough where the key decides. A function that can
    be called with three is called with three. Another number of arguments is a `ConfigError` when the producer is made.
    """

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        all_partitions: Sequence[int],
        available_partitions: Sequence[int],
        /,
    ) -> int:
        """Return the partition of a record for which `send` names none.

        Called once per record, never on a retry, when the partitions of the topic are known: in the call of `send`, or later
        for a record that had to wait. An exception fails the record with `PartitionerError`, and so does a number that is
        none of the partitions. It must not block.

        Args:
            topic: name of the record's topic.
            key: the key as it is written; None is no key.
            value: the value as it is written; None is a tombstone.
            all_partitions: all partition numbers of the topic, ascending from 0.
            available_partitions: those that have a leader; all, if none has one.

        Returns:
            One of `all_partitions`.
        """
        ...


def sees_records(partitioner: Callable[..., object]) -> bool:
    """Return whether a partitioner has the full form, with five arguments."""
    return not takes(partitioner, 3)
