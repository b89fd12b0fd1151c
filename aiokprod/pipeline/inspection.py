"""What a pipeline says of itself when it is asked: for `health()` and `metrics()`.

Asked from any thread: plain attributes only, lists are copied, and a torn view is a late one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aiokprod.cluster.client import ClusterClient
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import Persistence
from aiokprod.pipeline.admission import AdmissionGate
from aiokprod.pipeline.entrance import Entrance
from aiokprod.pipeline.flusher import BrokerFlusher
from aiokprod.pipeline.partition_queue import PartitionQueue


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


def measure(metrics: Metrics, gate: AdmissionGate, flushers: Sequence[BrokerFlusher]) -> None:
    """Bring the gauges up to date."""
    metrics.buffer_used_bytes.set(gate.held_bytes)
    metrics.buffer_waiting_records.set(gate.waiting_count)
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
