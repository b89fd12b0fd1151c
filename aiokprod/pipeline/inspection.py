"""Views of the whole pipeline, for `health()` and `metrics()`, and the periodic upkeep of its topics (`keep_house`).

All functions but `keep_house` may be called from any thread: they read plain attributes and copy lists. A view that is torn
between two updates is at worst slightly out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from aiokprod.logs import LINE_LIMIT, StateLog, printable
from aiokprod.metrics import INFINITY, Metrics
from aiokprod.model import Health, Persistence, ProducerState
from aiokprod.pipeline.partition.defects import Defects
from aiokprod.pipeline.partition.failing import FailingBatches, Trouble
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.partition.settings import PipelineSettings
from aiokprod.pipeline.sending.dispatcher import TopicDispatcher
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.waiting import readable

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod.cluster.client import ClusterClient
    from aiokprod.explanation import Explanation
    from aiokprod.pipeline.partition.partition_queue import PartitionQueue

UNREACHABLE_S: Final = 5.0
"""How long no broker answers until the producer is DEGRADED: another one is asked within a second of the first failure."""

LATE_S: Final = 10.0
"""How much longer than it lingers a record may be without an outcome; `request_timeout_ms` if that is less."""


class Degradation:
    """Why a producer is DEGRADED, and for how long it has been."""

    __slots__ = ("for_s", "reason")

    def __init__(self, for_s: float, reason: str) -> None:
        self.for_s = for_s
        self.reason = reason

    def __repr__(self) -> str:
        return f"<Degradation for {self.for_s:.1f} s: {self.reason}>"


def degradation(
    settings: PipelineSettings,
    client: ClusterClient,
    parking: Parking,
    failing: FailingBatches,
    now: float,
    transaction: Degradation | None,
    lasting_s: float | None,
    defects: Defects,
) -> Degradation | None:
    """Return why the producer is DEGRADED; None if it is not. From any thread.

    Args:
        settings: of the pipeline.
        client: of the pipeline.
        parking: of the pipeline.
        failing: the attempts that fail.
        now: loop time.
        transaction: what holds up the transaction; None: nothing.
        lasting_s: for so many seconds it has been DEGRADED, as the housekeeping saw it last; None: it was READY.
        defects: take what the search for a reason raises.
    """
    oldest = _oldest_record(parking)
    oldest_s = None if oldest is None else now - oldest[0]
    failing_s = client.failing_s
    is_known = bool(client.snapshot.brokers)
    for_s = degraded_for_s(is_known, failing_s, oldest_s, _late_s(settings))
    if transaction is not None:
        for_s = transaction.for_s if for_s is None else max(for_s, transaction.for_s)
    try:
        trouble = failing.newest()
        if for_s is None:
            if lasting_s is None or trouble is None:
                return None
            # The records that were late have failed. Attempts fail all the same: it is the same outage.
            return Degradation(lasting_s, f"attempts fail: {trouble.line()}")
        return Degradation(for_s, _reason(client, is_known, failing_s, transaction, oldest, trouble, now))
    except Exception as bug:
        defects.caught("the search for the reason of DEGRADED", bug)
    return None if for_s is None else Degradation(for_s, "records are late")


def _reason(
    client: ClusterClient,
    is_known: bool,
    failing_s: float | None,
    transaction: Degradation | None,
    oldest: tuple[float, TopicDispatcher, RecordQueue | None] | None,
    trouble: Trouble | None,
    now: float,
) -> str:
    """Return why the producer is DEGRADED."""
    unreachable = unreachable_text(client)
    if unreachable is not None and (not is_known or (failing_s is not None and failing_s >= UNREACHABLE_S)):
        return unreachable
    return _why_late(oldest, trouble, now) if transaction is None else transaction.reason


def held_transaction(state: str, trouble: str, unknown_s: float | None, ending_s: float | None) -> Degradation | None:
    """Return what holds up the transaction; None: nothing that counts. From any thread.

    Args:
        state: of the transactional id, in words.
        trouble: what went wrong with the last request to a coordinator; empty if nothing.
        unknown_s: for so many seconds it is not known how the last transaction ended; None: it is known.
        ending_s: so many seconds ago its commit or abort was asked for; None: it is not under way.
    """
    why = f": {trouble}" if trouble else ""
    if unknown_s is not None:
        return Degradation(unknown_s, f"it is not known how the last transaction ended, so none can begin{why}")
    if ending_s is not None and ending_s >= LATE_S:
        return Degradation(ending_s - LATE_S, f"the transaction has been {state} for {ending_s:.1f} s{why}")
    return None


def _late_s(settings: PipelineSettings) -> float:
    return settings.linger_s + min(LATE_S, settings.request_timeout_s)


def unreachable_text(client: ClusterClient) -> str | None:
    """Return that no broker answers, with the last error; None: one has answered, or none was asked yet. From any thread."""
    failing_s, trouble = client.failing_s, client.trouble
    last = f": {printable(trouble[1])}" if trouble is not None else ""
    if not client.snapshot.brokers:
        since = "" if failing_s is None else f", for {failing_s:.1f} s"
        return f"no broker was reached yet{since}{last}"
    return None if failing_s is None else f"no broker has answered for {failing_s:.1f} s{last}"


def _why_not_now(client: ClusterClient, parking: Parking) -> str | None:
    """Return why a record that is sent now would have to wait; None: it would go."""
    gate = parking.gate
    if gate.waiting_count or gate.held_bytes >= gate.limit_bytes:
        return f"the buffer is full: {readable(gate.held_bytes)} of {readable(gate.limit_bytes)} of buffer_memory are taken"
    return None if client.brokers_connected else unreachable_text(client)


def _why_late(
    oldest: tuple[float, TopicDispatcher, RecordQueue | None] | None, trouble: Trouble | None, now: float
) -> str:
    """Return why the oldest record has no outcome yet."""
    if oldest is None:
        return "records are late"
    sent_at, dispatcher, queue = oldest
    explained: Explanation | None = None
    try:
        parked = dispatcher.oldest() if queue is None else None
        if parked is not None:
            explained = parked.explain(0)
        elif queue is not None:
            explained = queue.explain_oldest()
    except RuntimeError:  # the loop has changed what another thread looks at: the next call tells more
        pass
    where, why = repr(dispatcher.topic), ""
    if explained is not None:
        if explained.partition is not None:
            where = f"{explained.topic}-{explained.partition}"
        why = f": {explained.why or explained.place.value}"
    code = "" if trouble is None or trouble.name in why else f"; attempts fail with {trouble.name}"
    return f"a record for {where} has had no outcome for {now - sent_at:.1f} s{why}{code}"


def may_be_degraded(
    settings: PipelineSettings,
    client: ClusterClient,
    parking: Parking,
    busy: Iterable[RecordQueue],
    now: float,
    *,
    is_held: bool,
) -> bool:
    """Return False if `degradation` is None for certain; costs less, for the housekeeping.

    Args:
        settings: of the pipeline.
        client: of the pipeline.
        parking: of the pipeline.
        busy: partitions with records.
        now: loop time.
        is_held: something holds up the transaction, or the producer was DEGRADED.
    """
    if is_held or client.failing_s is not None or not client.snapshot.brokers:
        return True
    late = now - _late_s(settings)
    for queue in busy:
        opened_at = queue.oldest_opened_at()
        if opened_at is not None and opened_at <= late:
            return True
    for dispatcher in list(parking.topics.values()):  # a copy: a finalizer may send to a new topic in between
        if dispatcher.waiting:
            sent_at = dispatcher.oldest_sent_at()
            if sent_at is not None and sent_at <= late:
                return True
    return False


def health(
    client: ClusterClient,
    parking: Parking,
    log: StateLog,
    failing: FailingBatches,
    state: ProducerState,
    since: float,
    now: float,
    *,
    degraded: Degradation | None,
    told_since: float | None,
    is_told: bool,
    failure: BaseException | None,
    transaction: str | None,
    transaction_log: StateLog | None = None,
    defects: Defects,
) -> Health:
    """Return the health of the producer, as docs/health.md says.

    Args:
        failing: the attempts that fail.
        state: of the producer's life.
        since: when that began, seconds since 1970.
        now: loop time.
        degraded: why the producer is DEGRADED, if it is READY otherwise.
        told_since: when the housekeeping saw READY become DEGRADED, or DEGRADED READY, last; None: never.
        is_told: it was DEGRADED when the housekeeping looked last.
        failure: what the producer has failed with.
        transaction: the state of the transactional id, if there is one.
        transaction_log: the log of the transactional id, if there is one.
        defects: take what the search for the last error raises.
    """
    gate = parking.gate
    reason = None if failure is None else f"{type(failure).__name__}: {printable(failure)}"
    if state is ProducerState.READY:
        if is_told is (degraded is not None):
            since = since if told_since is None else max(since, told_since)
        else:  # the housekeeping has not seen it yet
            since = max(since, wall_s() - (0.0 if degraded is None else degraded.for_s))
        if degraded is not None:
            state, reason = ProducerState.DEGRADED, printable(degraded.reason, LINE_LIMIT)
    is_ready = state is ProducerState.READY
    if is_ready:
        reason = _why_not_now(client, parking)
        is_ready = reason is None
    last = newest_error(client, log, transaction_log)
    try:
        last = _last_failure(failing, last, now)
    except Exception as bug:
        defects.caught("the search for the last error", bug)
    return Health(
        state=state,
        ready=is_ready,
        live=failure is None,
        since=since,
        brokers_connected=client.brokers_connected,
        buffered_bytes=gate.held_bytes,
        oldest_record_s=oldest_record_s(parking, now),
        last_error=None if last is None else last[1],
        transaction=transaction,
        reason=reason,
        last_error_at=None if last is None else last[0],
    )


def _last_failure(failing: FailingBatches, last: tuple[float, str] | None, now: float) -> tuple[float, str] | None:
    """Return the last error, `last` or that of an attempt or a refusal: (seconds since 1970, text)."""
    trouble = failing.newest()
    if trouble is not None:
        at = wall_s() - max(0.0, now - trouble.last_at)
        if last is None or at >= last[0]:
            last = (at, printable(trouble.line(), LINE_LIMIT))
    refusals = failing.refusals(now)
    if refusals and trouble is None:
        at = wall_s() - max(0.0, now - refusals[0].last_at)
        if last is None or at >= last[0]:
            last = (at, printable(refusals[0].line(now), LINE_LIMIT))
    return last


def degraded_for_s(is_connected: bool, failing_s: float | None, oldest_s: float | None, late_s: float) -> float | None:
    """Return for how many seconds the producer has been DEGRADED; None if it is not.

    Args:
        is_connected: True once a cluster was found.
        failing_s: seconds since the first of the requests in a row that no broker answered; None if the last was answered.
        oldest_s: age of the oldest record without an outcome, in seconds; None if there is none.
        late_s: the age up to which that is normal, in seconds.
    """
    if not is_connected:
        return INFINITY  # as long as the producer is started
    times = [] if failing_s is None else [failing_s - UNREACHABLE_S]
    if oldest_s is not None:
        times.append(oldest_s - late_s)
    longest_s = max(times, default=-1.0)
    return longest_s if longest_s >= 0 else None


def oldest_record_s(parking: Parking, now: float) -> float | None:
    """Return the age of the oldest record without an outcome: in a batch, or still on its way to one."""
    oldest = _oldest_record(parking)
    return None if oldest is None else now - oldest[0]


def _oldest_record(parking: Parking) -> tuple[float, TopicDispatcher, RecordQueue | None] | None:
    """Return when the oldest record without an outcome was sent, its topic, and its partition if a batch has it."""
    oldest: tuple[float, TopicDispatcher, RecordQueue | None] | None = None
    for dispatcher in list(parking.topics.values()):
        sent_at = dispatcher.oldest_sent_at()
        if sent_at is not None and (oldest is None or sent_at < oldest[0]):
            oldest = (sent_at, dispatcher, None)
        for queue in list(dispatcher.queues.values()):
            sent_at = queue.oldest_sent_at()
            if sent_at is not None and (oldest is None or sent_at < oldest[0]):
                oldest = (sent_at, dispatcher, queue)
    return oldest


def newest_error(
    client: ClusterClient, log: StateLog, transaction_log: StateLog | None = None
) -> tuple[float, str] | None:
    """Return the last warning, of the producer, its transactional id, or its cluster: (seconds since 1970, text)."""
    trouble = client.trouble
    if transaction_log is not None and transaction_log.last_error_at > log.last_error_at:
        log = transaction_log
    if trouble is not None and (log.last_error is None or trouble[0] > log.last_error_at):
        return client.trouble_wall_s, trouble[1]
    return None if log.last_error is None else (log.last_error_wall_s, log.last_error)


def measure(metrics: Metrics, parking: Parking, requests_in_flight: Mapping[int, int], now: float) -> None:
    """Bring the gauges up to date, but those of the health. `requests_in_flight`: by broker; `now`: loop time."""
    metrics.buffer_used_bytes.set(parking.gate.held_bytes)
    metrics.buffer_waiting_records.set(parking.gate.waiting_count)
    metrics.parked_records.set(parking.parked_for_topics)
    metrics.set_in_flight(requests_in_flight)
    oldest_s = oldest_record_s(parking, now)
    metrics.oldest_record_seconds.set(0.0 if oldest_s is None else oldest_s)


def unsettled(queues: Iterable[PartitionQueue]) -> dict[tuple[str, int | None, Persistence], int]:
    """Count the records without an outcome by (topic, partition, persistence): what a loop that ended leaves behind."""
    counts: dict[tuple[str, int | None, Persistence], int] = {}
    for queue in queues:
        for entry in list(queue.ledger.entries):
            count = entry.count
            if not entry.is_sealed:
                count = sum(last - first for first, last in entry.batch.live_ranges())
            if count and entry.is_open_ended:
                persistence = Persistence.POSSIBLY_PERSISTED if entry.is_sent else Persistence.NOT_PERSISTED
                key = (queue.topic, queue.partition, persistence)
                counts[key] = counts.get(key, 0) + count
    return counts


def keep_house(
    topics: Mapping[str, TopicDispatcher],
    client: ClusterClient,
    settings: PipelineSettings,
    now: float,
) -> list[RecordQueue]:
    """Keep topics with records in the metadata, and give each partitioner the bytes that wait for each partition.

    A partition that has accepted nothing for `partitioner_availability_timeout_ms` is reported as stuck (KIP-794).

    Returns:
        The partitions with records.
    """
    patience_s = settings.availability_timeout_s
    stuck_since = now - settings.linger_s - patience_s
    busy: list[RecordQueue] = []
    for dispatcher in list(topics.values()):  # copies: a finalizer may send to a new topic in between
        waiting = [0] * dispatcher.count
        stuck: list[int] = []
        has_records = has_waiting = False
        for number, queue in list(dispatcher.queues.items()):
            if queue.is_used:
                queue.is_used = False
                has_records = True
            oldest = queue.oldest_opened_at()
            if oldest is None:
                continue
            has_records = has_waiting = True
            busy.append(queue)
            if number < dispatcher.count:
                waiting[number] = queue.pending_bytes()
                if patience_s and oldest < stuck_since:
                    stuck.append(number)
        if has_waiting:
            client.want(dispatcher.topic)  # if it was deleted meanwhile, it may be created for them
        elif has_records:
            client.topic(dispatcher.topic)  # marks it as used: a topic without metadata would miss a new leader
        if dispatcher.is_known:
            dispatcher.partitioner.update_load(waiting, stuck)
    return busy
