"""The interfaces of a partition: for the TopicDispatcher and the inspection, and towards the gate.

Plain base classes, not Protocols: a call through a Protocol costs thirty times as much once compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokprod.errors import AiokprodError
from aiokprod.pipeline.delivery.delivery import Delivery, position_of
from aiokprod.pipeline.partition.batch import BatchOwner
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.send_many import SendMany
from aiokprod.pipeline.partition.value_run import ValueRun

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod.explanation import Explanation
    from aiokprod.pipeline.partition.column_batch import BatchListener
    from aiokprod.pipeline.partition.filled_batch import FilledBatch
    from aiokprod.records.column_rows import Section


class RecordQueue(BatchOwner):
    """A partition as the stages before it see it: a PartitionQueue, or a partition in memory (aiokprod.testing)."""

    is_used: bool  # a record came since the housekeeping looked last

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> Delivery:
        """Take a record for which there is room, and charge for it.

        Raises:
            BaseException: whatever comes between two lines: the record was not taken, or it was taken with all its books.
        """
        raise AssertionError("abstract")

    def append_for(
        self,
        delivery: Delivery,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> None:
        """Take a record as `append` does, for a Delivery that was made before."""
        holder, index = position_of(self.append(value, key, headers, timestamp_ms, size_bytes, now))
        delivery._move_to(holder, index)  # pyright: ignore[reportPrivateUsage] - users are not shown it

    def append_to(self, bulk: SendMany, value: bytes, timestamp_ms: int, size_bytes: int, now: float) -> None:
        """Append and charge, as `append` does, a record of `send_many`: no Delivery is needed."""
        bulk.add(self.append(value, None, None, timestamp_ms, size_bytes, now), has_timeout=False)

    def append_run(self, bulk: SendMany, run: ValueRun, timestamp_ms: int, now: float, stay_bytes: int) -> None:
        """Append and charge the next of these values, which fits, and those behind it that go into the same batch.

        `stay_bytes`: bytes behind the first value after which the partitioner is to be asked again.
        """
        run.cut(0, 0)
        for value, size_bytes in zip(run.cells, run.sizes, strict=True):
            assert value is not None
            self.append_to(bulk, value, timestamp_ms, size_bytes, now)

    def append_parked(self, record: ParkedRecord) -> None:
        """Take a record that was parked."""
        raise AssertionError("abstract")

    def append_columns(self, section: Section, rows: Sequence[int], charge_bytes: int, listener: BatchListener) -> None:
        """Take a batch of `send_columns`, which is encoded and charged for; the listener counts its rows as taken."""
        raise AssertionError("abstract")

    def append_batch(self, filled: FilledBatch) -> list[Delivery]:
        """Take a batch that a program has filled, which is charged for; a Delivery for each of its records."""
        raise AssertionError("abstract")

    def recall_all(self, error: AiokprodError) -> tuple[int, int]:
        """Take all records out that can be recalled, fail them with this error; return their number, and that of the rest."""
        raise AssertionError("abstract")

    def pending_bytes(self) -> int:
        """Return the bytes of records without an outcome."""
        raise AssertionError("abstract")

    def explain_oldest(self) -> Explanation | None:
        """Return where its oldest record without an outcome is, and why; None: there is none. From any thread."""
        raise AssertionError("abstract")

    def oldest_sent_at(self) -> float | None:
        """Return when its oldest record without an outcome was sent (loop time, s); None: there is none. From any thread."""
        raise AssertionError("abstract")

    def oldest_opened_at(self) -> float | None:
        """Return when its oldest batch without an outcome was opened (loop time, seconds); None: there is none."""
        raise AssertionError("abstract")


class Room:
    """The AdmissionGate as a partition sees it, which stands below it."""

    used_bytes: int
    """charged; a partition adds to it on the line that takes a record"""

    @property
    def is_short(self) -> bool:
        """True while anything waits for room: then nothing lingers."""
        raise AssertionError("abstract")

    def free(self, charge_bytes: int) -> None:
        """Take back bytes that were charged; they are granted after the state change under way."""
        raise AssertionError("abstract")
