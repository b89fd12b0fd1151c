"""`Outages`: the log lines about deliveries that are held up, and about the end of that. One per pipeline.

    housekeeping, each half second -> look -> the log

A look costs what the topics, and the partitions with records, cost; nothing is done per record. It is taken outside of every
state change, as a log handler may send. An exception in it fails no record (`Defects`). docs/how-to/logging.md has the lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiokprod.logs import Pace, StateLog
from aiokprod.metrics import Metrics, Number
from aiokprod.pipeline.inspection import UNREACHABLE_S, Degradation
from aiokprod.pipeline.partition.defects import Defects
from aiokprod.pipeline.partition.failing import FailingBatches
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.waiting import WaitsFor, readable

FULL_S: Final = 2.0
"""How long nothing that waits for room is given any until the log says that the buffer is full."""
STOOD_STILL_S: Final = 5.0
"""How long the event loop runs nothing until the log says so: a machine with too much work holds it up for a second or two."""
SERIALIZER_S: Final = 5.0
"""How long a record waits for an awaitable serializer until the log says so."""


class Outages:
    """The outages of one producer, as the log tells them."""

    def __init__(
        self,
        parking: Parking,
        log: StateLog,
        metrics: Metrics,
        failing: FailingBatches,
        defects: Defects,
        longest_block: str,
    ) -> None:
        self.since: float | None = None  # when DEGRADED began or ended last, seconds since 1970
        self.is_degraded = False  # as the housekeeping saw it last
        self._parking = parking
        self._log = log
        self._metrics = metrics
        self._failing = failing
        self._defects = defects
        self._longest_block = longest_block
        self._looked_at: float | None = None  # loop time
        self._stall_pace = Pace()
        self._first: object = None  # what has waited for room as the first since `_first_at`
        self._first_at = 0.0
        self._full_since: float | None = None  # while the log says that the buffer is full
        self._full_bytes = 0  # that were taken then
        self._full_pace = Pace()
        self._hanging: dict[str, float] = {}  # topics of which the log says that a serializer hangs: since when
        self._hanging_pace = Pace()
        self._ready_since: float | None = None  # loop time; None: the producer is not READY yet
        self._degraded_at = 0.0  # loop time
        self._delivered: Number = 0  # of the metrics, when DEGRADED began, as the next
        self._failed: Number = 0
        self._state_pace = Pace()
        self._state_has_line = False

    def begin(self, now: float) -> None:
        """Note that the producer is READY: from now on its state is watched. `now`: loop time."""
        self._ready_since = now

    def look(self, now: float) -> None:
        """Write what is due. A defect in one of these steps keeps none of the others from its lines. `now`: loop time."""
        steps: list[tuple[str, Callable[[float], None]]] = [
            ("the look at the event loop", self._look_at_loop),
            ("the look at batches that fail", self._look_at_batches),
            ("the look at the buffer", self._look_at_room),
            ("the look at serializers", self._look_at_serializers),
        ]
        for name, step in steps:
            try:
                step(now)
            except Exception as bug:
                self._defects.caught(name, bug)

    def _look_at_batches(self, now: float) -> None:
        self._failing.tell(self._log, now)

    def _look_at_loop(self, now: float) -> None:
        looked_at, self._looked_at = self._looked_at, now
        late_s = 0.0 if looked_at is None else now - looked_at
        if late_s < STOOD_STILL_S:
            return
        self._metrics.loop_stalled_seconds.add(late_s)
        if self._stall_pace.passes(now) is not None:
            self._log.warned_now(
                f"the event loop has stood still for {late_s:.1f} s: nothing was sent, and no answer was read. A call that"
                " blocks belongs into a thread (asyncio.to_thread); asyncio's debug mode names calls that take long"
            )

    # ------------------------------------------------------------------ READY and DEGRADED
    def degraded_for_s(self, now: float) -> float | None:
        """Return for how many seconds the producer has been DEGRADED; None: it was READY at the last look."""
        return now - self._degraded_at if self.is_degraded else None

    def look_at_state(self, degraded: Degradation | None, now: float) -> None:
        """Write that READY became DEGRADED, or DEGRADED READY. `degraded`: why it is DEGRADED now; `now`: loop time."""
        ready_since = self._ready_since
        if ready_since is None:
            return
        metrics = self._metrics
        if degraded is not None and not self.is_degraded:
            if degraded.for_s > now - ready_since and now - ready_since < UNREACHABLE_S:
                return  # it connects for the first time, in the background
            for_s = min(degraded.for_s, now - ready_since)
            self.is_degraded, self.since, self._degraded_at = True, wall_s() - for_s, now - for_s
            self._delivered, self._failed = metrics.records_delivered.value, metrics.records_failed.value
            self._state_has_line = False
        if degraded is not None and not self._state_has_line:
            # Later than it began, if the last one has just ended: a state that comes and goes has no line each time.
            self._state_has_line = self._state_pace.passes(now) is not None
            if self._state_has_line:
                self._log.announced(f"READY -> DEGRADED because {degraded.reason}")
        elif degraded is None and self.is_degraded:
            self.is_degraded, self.since = False, wall_s()
            self._state_pace.ended(now)
            if self._state_has_line:
                delivered = metrics.records_delivered.value - self._delivered
                were = "record was" if delivered == 1 else "records were"
                failed = metrics.records_failed.value - self._failed
                self._log.announced(
                    f"DEGRADED -> READY because its cause is gone, after {now - self._degraded_at:.1f} s: meanwhile"
                    f" {delivered} {were} delivered, and {failed} failed"
                )

    # ------------------------------------------------------------------ the buffer
    def _look_at_room(self, now: float) -> None:
        gate = self._parking.gate
        first, was = gate.first_waiting(), self._first
        self._first = first
        is_freed = gate.held_bytes < self._full_bytes
        # One that has given up has got no room: the one behind it waits for the same.
        has_given_up = isinstance(was, ParkedRecord) and was.failure is not None
        if first is None or (first is not was and not has_given_up):
            if self._full_since is None:
                self._first_at = now
            elif is_freed or (was is not None and not has_given_up):
                full_s = now - self._full_since
                self._full_since, self._first_at = None, now
                self._full_pace.ended(now)
                self._log.announced(f"there is room in the buffer again, after {full_s:.1f} s")
            return
        if now - self._first_at < FULL_S or self._full_pace.passes(now) is None:
            return
        if self._full_since is None:
            self._full_since, self._full_bytes = self._first_at, gate.held_bytes
        records, tasks = gate.waiting_count - gate.waiting_tasks, gate.waiting_tasks + gate.ready_count
        self._log.warned_now(
            f"the buffer is full, and nothing has left it for {now - self._first_at:.1f} s: {readable(gate.held_bytes)} of"
            f" {readable(gate.limit_bytes)} of buffer_memory are taken; {records} records and {tasks} tasks wait for room, up"
            f" to {self._longest_block}"
        )

    # ------------------------------------------------------------------ serializers
    def _look_at_serializers(self, now: float) -> None:
        hanging: dict[str, ParkedRecord] = {}
        for topic, dispatcher in list(self._parking.topics.items()):  # a copy: a finalizer may send to a new topic
            if dispatcher.waiting:
                oldest = dispatcher.oldest()
                if (
                    oldest is not None
                    and oldest.waits is WaitsFor.SERIALIZER
                    and now - oldest.waits_since() >= SERIALIZER_S
                ):
                    hanging[topic] = oldest
        if not hanging and not self._hanging:
            return
        for topic, since in list(self._hanging.items()):
            if topic not in hanging:
                del self._hanging[topic]
                self._hanging_pace.ended(now)
                self._log.announced(
                    f"no record of topic {topic!r} waits for a slow serializer any more, after {now - since:.1f} s",
                    topic=topic,
                )
        if hanging and self._hanging_pace.passes(now) is not None:
            for topic, oldest in hanging.items():
                self._hanging.setdefault(topic, oldest.waits_since())
            topic, oldest = next(iter(hanging.items()))
            others = f", and {len(hanging) - 1} more topics" if len(hanging) > 1 else ""
            self._log.warned_now(
                f"a serializer has not returned for {now - oldest.waits_since():.1f} s: topic {topic!r}{others} waits for it,"
                f" with {len(self._parking.topics[topic].waiting)} records",
                topic=topic,
            )

    def __repr__(self) -> str:
        return f"<Outages {self._failing}>"
