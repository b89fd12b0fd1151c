"""`Backend`: what a pipeline stands on. Brokers (`broker_backend`), or the memory of a test (`aiokprod.testing.memory`).

A pipeline owns a life: it starts, takes records, flushes, closes, fails. What takes the records of a partition, and how they
get their outcome, is the matter of its backend, which is made with the context of the pipeline and lives as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokprod.liveness import Stall
from aiokprod.model import Persistence
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.sending.parking import Parking

if TYPE_CHECKING:  # made for producers that have them
    from aiokprod.cluster.client import ClusterClient
    from aiokprod.explanation import Obstacle
    from aiokprod.telemetry.pusher import TelemetryPusher
    from aiokprod.transactions.transactor import Transactor


class Backend:
    """The cluster, the `Parking`, and the stages behind it."""

    client: ClusterClient
    parking: Parking
    transactor: Transactor | None
    """of a producer with a transactional id"""
    telemetry: TelemetryPusher | None
    """unless it is turned off, or there are no brokers"""

    def begin(self) -> None:
        """Prepare for records: the client has been started."""
        raise AssertionError("abstract")

    def seal(self) -> None:
        """Close the open batches: a flush waits for them, and not for what is sent from now on."""
        raise AssertionError("abstract")

    def purge(self, cause: BaseException | None) -> None:
        """Give every record that a partition has an outcome now. May be called again.

        Args:
            cause: why the pipeline has failed; None: it is closed.
        """
        raise AssertionError("abstract")

    def stop_writing(self) -> None:
        """Write nothing more: what has no outcome is about to be given up."""

    def purge_some(self, most: int) -> bool:
        """Begin to do what `purge(None)` does, with so many batches; False: there is nothing left that can be done in parts."""
        return False

    def fail(self, cause: BaseException) -> None:
        """Give every record that has no outcome yet one, though a step of ours did not come to its end. May be called again.

        It tries all partitions, and raises what the last of those raised that could not do it.

        Args:
            cause: why the pipeline has failed.
        """
        self.purge(cause)

    def half_done(self) -> str | None:
        """Return the name of a partition with a step that did not come to its end; None: there is none. Between two steps."""
        return None

    def end(self) -> None:
        """Stop all timers and write nothing more; after the last `purge`."""
        raise AssertionError("abstract")

    def stalls(self, busy: Sequence[RecordQueue], now: float) -> list[Stall]:
        """Return what stands still though nothing would move it: docs/design.md, "The watch".

        Args:
            busy: the partitions with records.
            now: loop time.
        """
        return []

    def unsettled(self) -> dict[tuple[str, int | None, Persistence], int]:
        """Count the records that a partition has and that have no outcome yet. From any thread while the loop stands."""
        raise AssertionError("abstract")

    def obstacles(self, now: float) -> list[Obstacle]:
        """Return what holds up records that partitions have, and requests; `now`: loop time. From any thread."""
        raise AssertionError("abstract")

    def requests_in_flight(self) -> dict[int, int]:
        """Count the requests to each broker that have no answer yet. From any thread."""
        raise AssertionError("abstract")
