"""What a pipeline says of itself when it is asked: for `health()` and `metrics()`.

Asked from any thread: plain attributes only, lists are copied, and a torn view is a late one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import time
from typing import Final

from aiokprod.cluster.client import ClusterClient
from aiokprod.logs import StateLog
from aiokprod.metrics import INFINITY, Metrics
from aiokprod.model import Health, Persistence, ProducerState
from aiokprod.pipeline.entrance import Entrance
from aiokprod.pipeline.flusher import BrokerFlusher
from aiokprod.pipeline.partition_queue import PartitionQueue
from aiokprod.pipeline.settings import PipelineSettings

UNREACHABLE_S: Final = 5.0
"""How long no broker answers until the producer is DEGRADED: another one is asked within a second of the first failure."""

LATE_S: Final = 10.0
"""How much longer than it lingers a record may be without an outcome; `request_timeout_ms` if that is less."""


def health(
    settings: PipelineSettings,
    client: ClusterClient,
    entrance: Entrance,
    log: StateLog,
    state: ProducerState,
    since: float,
    now: float,
    *,
    is_live: bool,
) -> Health:
    """What docs/health.md says.

    Args:
        state: of the producer's life.
        since: when that began, seconds since 1970.
        now: loop time.
        is_live: has nothing failed for good?
    """
    oldest_s = oldest_record_s(entrance, now)
    if state is ProducerState.READY:
        late_s = settings.linger_s + min(LATE_S, settings.request_timeout_s)
        degraded_s = degraded_for_s(bool(client.snapshot.brokers), client.failing_s, oldest_s, late_s)
        if degraded_s is not None:
            state = ProducerState.DEGRADED
            since = max(since, time() - degraded_s)
    gate = entrance.gate
    return Health(
        state=state,
        ready=state is ProducerState.READY and not gate.waiting_count,
        live=is_live,
        since=since,
        brokers_connected=client.brokers_connected,
        buffered_bytes=gate.held_bytes,
        oldest_record_s=oldest_s,
        last_error=newest_error(client, log),
    )


def degraded_for_s(is_connected: bool, failing_s: float | None, oldest_s: float | None, late_s: float) -> float | None:
    """For how long records have not got through; None: they do.

    Args:
        is_connected: has there been a cluster?
        failing_s: since when no broker answers.
        oldest_s: age of the oldest record without an outcome.
        late_s: what that may be.
    """
    if not is_connected:
        return INFINITY  # since it was started
    times = [] if failing_s is None else [failing_s - UNREACHABLE_S]
    if oldest_s is not None:
        times.append(oldest_s - late_s)
    longest_s = max(times, default=-1.0)
    return longest_s if longest_s >= 0 else None


def oldest_record_s(entrance: Entrance, now: float) -> float | None:
    """Age of the oldest record without an outcome: in a batch, or still on its way to one."""
    dispatchers = list(entrance.topics.values())
    times = [dispatcher.oldest_sent_at() for dispatcher in dispatchers]
    for dispatcher in dispatchers:
        times.extend(queue.oldest_opened_at() for queue in list(dispatcher.queues.values()))
    known = [at for at in times if at is not None]
    return now - min(known) if known else None


def newest_error(client: ClusterClient, log: StateLog) -> str | None:
    """The newer of what the producer and its cluster had to warn of."""
    trouble = client.trouble
    if trouble is not None and (log.last_error is None or trouble[0] > log.last_error_at):
        return trouble[1]
    return log.last_error


def measure(metrics: Metrics, entrance: Entrance, flushers: Sequence[BrokerFlusher]) -> None:
    """Bring the gauges up to date."""
    metrics.buffer_used_bytes.set(entrance.gate.held_bytes)
    metrics.buffer_waiting_records.set(entrance.gate.waiting_count)
    metrics.parked_records.set(entrance.parked_for_topics)
    connections = [flusher.connection for flusher in flushers]
    metrics.requests_in_flight.set(sum(c.in_flight for c in connections if c is not None))


def unsettled(entrance: Entrance, queues: Iterable[PartitionQueue]) -> dict[tuple[str, int | None, Persistence], int]:
    """How many records have no outcome, by (topic, partition, persistence): what a loop that ended leaves behind."""
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
    for topic, parked in entrance.parked_counts().items():
        counts[topic, None, Persistence.NOT_PERSISTED] = parked
    return counts
