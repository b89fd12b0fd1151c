"""Views of the whole pipeline, for `health()` and `metrics()`, and the periodic upkeep of its topics (`keep_house`).

All functions but `keep_house` may be called from any thread: they read plain attributes and copy lists. A view that is torn
between two updates is at worst slightly out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import time
from typing import Final

from aiokprod.cluster.client import ClusterClient
from aiokprod.logs import StateLog
from aiokprod.metrics import INFINITY, Metrics
from aiokprod.model import Health, Persistence, ProducerState
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.partition.settings import PipelineSettings
from aiokprod.pipeline.sending.dispatcher import TopicDispatcher
from aiokprod.pipeline.sending.parking import Parking

UNREACHABLE_S: Final = 5.0
"""How long no broker answers until the producer is DEGRADED: another one is asked within a second of the first failure."""

LATE_S: Final = 10.0
"""How much longer than it lingers a record may be without an outcome; `request_timeout_ms` if that is less."""


def health(
    settings: PipelineSettings,
    client: ClusterClient,
    parking: Parking,
    log: StateLog,
    state: ProducerState,
    since: float,
    now: float,
    *,
    is_live: bool,
    transaction: str | None,
    unknown_s: float | None = None,
    transaction_log: StateLog | None = None,
) -> Health:
    """Return the health of the producer, as docs/health.md says.

    Args:
        state: of the producer's life.
        since: when that began, seconds since 1970.
        now: loop time.
        is_live: has nothing failed for good?
        transaction: the state of the transactional id, if there is one.
        unknown_s: for so many seconds it is not known how the last transaction ended, and none can begin; None: it is known.
        transaction_log: the log of the transactional id, if there is one.
    """
    oldest_s = oldest_record_s(parking, now)
    if state is ProducerState.READY:
        late_s = settings.linger_s + min(LATE_S, settings.request_timeout_s)
        degraded_s = degraded_for_s(bool(client.snapshot.brokers), client.failing_s, oldest_s, late_s)
        if unknown_s is not None:
            degraded_s = unknown_s if degraded_s is None else max(degraded_s, unknown_s)
        if degraded_s is not None:
            state = ProducerState.DEGRADED
            since = max(since, time() - degraded_s)
    gate = parking.gate
    return Health(
        state=state,
        ready=state is ProducerState.READY and not gate.waiting_count,
        live=is_live,
        since=since,
        brokers_connected=client.brokers_connected,
        buffered_bytes=gate.held_bytes,
        oldest_record_s=oldest_s,
        last_error=newest_error(client, log, transaction_log),
        transaction=transaction,
    )


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
    dispatchers = list(parking.topics.values())
    times = [dispatcher.oldest_sent_at() for dispatcher in dispatchers]
    for dispatcher in dispatchers:
        times.extend(queue.oldest_sent_at() for queue in list(dispatcher.queues.values()))
    known = [at for at in times if at is not None]
    return now - min(known) if known else None


def newest_error(client: ClusterClient, log: StateLog, transaction_log: StateLog | None = None) -> str | None:
    """Return the last warning: of the producer, its transactional id, or its cluster, whichever is newer."""
    trouble = client.trouble
    if transaction_log is not None and transaction_log.last_error_at > log.last_error_at:
        log = transaction_log
    if trouble is not None and (log.last_error is None or trouble[0] > log.last_error_at):
        return trouble[1]
    return log.last_error


def measure(metrics: Metrics, parking: Parking, requests_in_flight: int) -> None:
    """Bring the gauges up to date."""
    metrics.buffer_used_bytes.set(parking.gate.held_bytes)
    metrics.buffer_waiting_records.set(parking.gate.waiting_count)
    metrics.parked_records.set(parking.parked_for_topics)
    metrics.requests_in_flight.set(requests_in_flight)


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
    for dispatcher in topics.values():
        waiting = [0] * dispatcher.count
        stuck: list[int] = []
        has_records = has_waiting = False
        for number, queue in dispatcher.queues.items():
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
