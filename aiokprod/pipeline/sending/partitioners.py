"""Partitioners: which partition a record without one goes to. One per topic; pure, randomness passed in.

`choose` is asked for each record: it is O(1) and allocates nothing. The dispatcher tells when metadata changed, when a
batch was opened, and from time to time how much waits at each partition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from random import Random

from aiokprod.config.partitioner import sees_records
from aiokprod.errors import ConfigError, PartitionerError
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.sending.hashes import (
    KeyCache,
    KeyPartitions,
    crc32_partition,
    fnv1a_partition,
    fnv1a_reference_partition,
    murmur2_keys,
)


class TopicPartitioner:
    """The base of all: keeps the partitions and those that have a leader."""

    def __init__(self, random: Random) -> None:
        self.random = random
        # The first three are read by `send_columns`, which asks for whole chunks at once (aiokprod/pipeline/columns).
        self.is_sticky = False  # records without a key stay with a partition for a batch
        self.sees_keys = True  # False: records with a key go where records without one go
        self.by_murmur2 = False  # a key goes to its murmur2 hash: a column of keys is hashed without calling `choose`
        self.has_runs = False  # `stay_bytes` says how much goes to the partition that was chosen last
        self.is_users = False  # code of the user, which may do anything: send, close
        self.sees_values = False  # `choose_for` is to be given the value
        self.count = 0
        self.available: list[int] = []

    def update(self, partition_count: int, available: list[int], now_s: float) -> None:
        """Take in new metadata."""
        self.count = partition_count
        self.available = list(available) or list(range(partition_count))

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        """Choose the partition of the next record."""
        raise AssertionError("abstract")

    def choose_for(self, key: bytes | None, value: bytes | None, size_bytes: int) -> int:
        """Choose the partition of the next record. For a partitioner of the user, which may want to see the record."""
        return self.choose(key, size_bytes)

    def stay_bytes(self) -> int:
        """Return the bytes of records without a key that may follow the last one before `choose` is to be asked again."""
        raise AssertionError("only where has_runs is True")

    def stayed(self, size_bytes: int) -> None:
        """Note that records of `size_bytes` went to the partition of the last record."""
        raise AssertionError("only where has_runs is True")

    def on_new_batch(self, partition: int) -> None:
        """Note that a batch was opened at the partition."""

    def update_load(self, waiting_bytes: list[int], excluded: list[int]) -> None:
        """Take in how much waits at each partition; `excluded` do not drain."""

    def _any(self) -> int:
        return self.available[self.random.randrange(len(self.available))]


class UniformSticky(TopicPartitioner):
    """KIP-794: records without a key stay with a partition for as many bytes as a batch takes, then another is drawn.

    With a codec these are the bytes that are expected to pack into `batch_size`, as in Java's client: fewer would leave
    batches that are half full.
    Adaptive: partitions with less waiting are drawn more often. Keys go by murmur2 unless they are ignored.
    """

    def __init__(self, random: Random, keys: KeyPartitions | None, fill: BatchFill, adaptive: bool) -> None:
        super().__init__(random)
        self.is_sticky = self.has_runs = True
        self.sees_keys = self.by_murmur2 = keys is not None
        self._keys = keys
        self._fill = fill
        self._adaptive = adaptive
        self._current = -1
        self._left_bytes = 0
        self._cumulative: list[int] | None = None  # weights of the available partitions; None: all alike
        self._drawn: list[int] = []

    def update(self, partition_count: int, available: list[int], now_s: float) -> None:
        super().update(partition_count, available, now_s)
        if self._keys is not None:
            self._keys.resize(partition_count)
        self._cumulative = None
        if self._current not in self.available:
            self._left_bytes = 0

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        if key is not None and self._keys is not None:
            return self._keys.partition(key)
        if self._left_bytes <= 0:
            self._current = self._draw()
            self._left_bytes = max(1, self._fill.limit_bytes)
        self._left_bytes -= size_bytes
        return self._current

    def stay_bytes(self) -> int:
        return self._left_bytes

    def stayed(self, size_bytes: int) -> None:
        self._left_bytes -= size_bytes

    def _draw(self) -> int:
        cumulative = self._cumulative
        if cumulative is None:
            return self._any()
        return self._drawn[bisect_right(cumulative, self.random.randrange(cumulative[-1]))]

    def update_load(self, waiting_bytes: list[int], excluded: list[int]) -> None:
        if not self._adaptive or not self.available or len(waiting_bytes) != self.count:
            return
        stuck = set(excluded)  # a list of half of 10,000 partitions would be walked 10,000 times
        usable = [p for p in self.available if p not in stuck] or self.available
        batch_bytes = max(1, self._fill.limit_bytes)
        waits = [waiting_bytes[p] // batch_bytes for p in usable]
        if max(waits) == min(waits) and len(usable) == len(self.available):
            self._cumulative = None
            return
        most = max(waits) + 1
        self._drawn = usable
        self._cumulative = list(accumulate(most - wait for wait in waits))
        if self._current not in usable:
            self._left_bytes = 0


class Sticky(TopicPartitioner):
    """KIP-480: records without a key stay with a partition until a batch is opened there, then another is drawn."""

    def __init__(self, random: Random, keys: KeyPartitions | None) -> None:
        super().__init__(random)
        self.is_sticky = True
        self.sees_keys = self.by_murmur2 = keys is not None
        self._keys = keys
        self._current = -1
        self._opened = False

    def update(self, partition_count: int, available: list[int], now_s: float) -> None:
        super().update(partition_count, available, now_s)
        if self._keys is not None:
            self._keys.resize(partition_count)
        if self._current not in self.available:
            self._current = self._any()
            self._opened = False

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        if key is not None and self._keys is not None:
            return self._keys.partition(key)
        return self._current

    def on_new_batch(self, partition: int) -> None:
        """Draw another partition at the second batch: the first is the one for which this partition was drawn."""
        if partition == self._current:
            if self._opened and len(self.available) > 1:
                # One of the others, all alike: the last one stands for the place of this one. No list: it is each batch.
                drawn = self.available[self.random.randrange(len(self.available) - 1)]
                self._current = self.available[-1] if drawn == partition else drawn
                self._opened = False
            else:
                self._opened = True


class RoundRobin(TopicPartitioner):
    """One after the other, from a random start; partitions without a leader are passed over."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._next = -1

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        size = len(self.available)
        self._next = self.random.randrange(size) if self._next < 0 else (self._next + 1) % size
        return self.available[self._next]


class RandomPartitioner(TopicPartitioner):
    """Any partition with a leader."""

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        return self._any()


class Hashing(TopicPartitioner):
    """A hash of the key. Without a key: the hash of b"" (`empty_for_none`), else any partition.

    `none_for_empty`: an empty key counts as none.
    """

    def __init__(
        self, random: Random, keys: KeyPartitions, *, empty_for_none: bool, none_for_empty: bool = False
    ) -> None:
        super().__init__(random)
        self._keys = keys
        self._empty_for_none = empty_for_none
        self._none_for_empty = none_for_empty

    def update(self, partition_count: int, available: list[int], now_s: float) -> None:
        super().update(partition_count, available, now_s)
        self._keys.resize(partition_count)

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        if key is None:
            return self._keys.partition(b"") if self._empty_for_none else self._any()
        if not key and self._none_for_empty:
            return self._any()
        return self._keys.partition(key)


class Custom(TopicPartitioner):
    """A function of the user: `(key, all partitions, available partitions) -> partition`; or `Partitioner`, the full form."""

    def __init__(self, random: Random, function: Callable[..., object], topic: str) -> None:
        super().__init__(random)
        self.is_users = True
        self.sees_values = sees_records(function)
        self._topic = topic
        self._function = function
        self._all: range = range(0)
        self._given: tuple[int, ...] = ()  # the user cannot change our list through it

    def update(self, partition_count: int, available: list[int], now_s: float) -> None:
        super().update(partition_count, available, now_s)
        self._all = range(partition_count)
        self._given = tuple(self.available)

    def choose(self, key: bytes | None, size_bytes: int) -> int:
        return self.choose_for(key, None, size_bytes)

    def choose_for(self, key: bytes | None, value: bytes | None, size_bytes: int) -> int:
        try:
            # An object, whatever the user's type says.
            partition: object = (
                self._function(self._topic, key, value, self._all, self._given)
                if self.sees_values
                else self._function(key, self._all, self._given)
            )
        except (SystemExit, KeyboardInterrupt):
            raise
        except (
            BaseException
        ) as broken:  # a CancelledError, too: let through, it would end the task that asks for metadata
            error = PartitionerError(f"the partitioner raised {type(broken).__name__}")
            error.__cause__ = broken  # "raise ... from" says nothing once compiled
            raise error  # noqa: B904
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise PartitionerError(f"the partitioner returned {partition!r}, not an int")
        if not 0 <= partition < self.count:
            raise PartitionerError(
                f"the partitioner returned {partition}; the topic has partitions 0 to {self.count - 1}"
            )
        return partition


def make_partitioner(
    partitioner: str | Callable[..., int],
    *,
    ignore_keys: bool,
    adaptive: bool,
    fill: BatchFill,
    random: Random,
    topic: str = "",
) -> TopicPartitioner:
    """Make the partitioner of one topic, by name or around a user's function.

    crc32 and murmur2_random are librdkafka's consistent_random and murmur2_random: any partition without a key, for
    crc32 also with an empty one; consistent and murmur2 are theirs too: the hash of an empty key. fnv1a is Sarama's
    hash partitioner.
    """
    if not isinstance(partitioner, str):
        return Custom(random, partitioner, topic)
    keys = None if ignore_keys else murmur2_keys()
    match partitioner:
        case "uniform_sticky":
            return UniformSticky(random, keys, fill, adaptive)
        case "sticky":
            return Sticky(random, keys)
        case "round_robin":
            return RoundRobin(random)
        case "random":
            return RandomPartitioner(random)
        case "murmur2" | "murmur2_random":
            hashing = Hashing(random, murmur2_keys(), empty_for_none=partitioner == "murmur2")
            hashing.by_murmur2 = True
            return hashing
        case "consistent":
            return Hashing(random, KeyCache(crc32_partition), empty_for_none=True)
        case "crc32":
            return Hashing(random, KeyCache(crc32_partition), empty_for_none=False, none_for_empty=True)
        case "fnv1a":
            return Hashing(random, KeyCache(fnv1a_partition), empty_for_none=False)
        case "fnv1a_reference":
            return Hashing(random, KeyCache(fnv1a_reference_partition), empty_for_none=False)
        case _:
            raise ConfigError(f"partitioner {partitioner!r} is unknown")
