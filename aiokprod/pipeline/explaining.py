"""`explain`: why the deliveries of a producer are slow or stuck, with numbers, from state that its stages keep anyway.

Computed when a program asks, from any thread: plain attributes, and copies of lists. The cost grows with the topics and the
partitions that had records, not with the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, TypeVar

from aiokprod.cluster.client import ClusterClient
from aiokprod.explanation import Explanation, Obstacle, ObstacleKind, ProducerExplanation
from aiokprod.logs import printable
from aiokprod.model import Health
from aiokprod.pipeline.broker.flusher import BrokerFlusher
from aiokprod.pipeline.inspection import UNREACHABLE_S, unreachable_text
from aiokprod.pipeline.partition.failing import FailingBatches
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.pipeline.sending.dispatcher import TopicDispatcher
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.waiting import WaitsFor, readable

NAMED: Final = 3
"""Topics, or partitions, that a text names; the others are counted."""
SLOW_S: Final = 1.0
"""How long a broker owes the answer to its oldest request until it counts as slow."""
TRIES: Final = 5
"""Looks at a list that another thread changes at the same time."""
QUIET_STATES: Final = ("ready", "open")
"""States of a transactional id that hold nothing up."""
SEVERITY: Final = list(ObstacleKind)

T = TypeVar("T")


def explain(
    parking: Parking,
    client: ClusterClient,
    failing: FailingBatches,
    health: Health,
    transaction_trouble: str,
    obstacles: Sequence[Obstacle],
    requests_in_flight: int,
    now: float,
) -> ProducerExplanation:
    """Return why deliveries are slow, of a producer that is up.

    Args:
        parking: of the pipeline.
        client: of the pipeline.
        failing: of the pipeline.
        health: of the producer.
        transaction_trouble: what went wrong with the last request to a coordinator; empty if nothing.
        obstacles: behind the parking, and those of the producer's life.
        requests_in_flight: Produce requests without an answer.
        now: loop time.
    """
    gate = parking.gate
    found = [*obstacles, *_of_cluster(client), *_of_parking(parking, now)]
    for each in failing.refusals(now)[:NAMED] if health.live else ():
        found.append(Obstacle(kind=ObstacleKind.REFUSED, text=each.line(now), topic=each.topic))
    if health.live and health.transaction is not None and health.transaction not in QUIET_STATES:
        trouble = f": {transaction_trouble}" if transaction_trouble else ""
        found.append(
            Obstacle(kind=ObstacleKind.TRANSACTION, text=f"the transactional id is {health.transaction}{trouble}")
        )
    if not found and health.reason is not None:
        found.append(Obstacle(kind=ObstacleKind.LATE, text=health.reason))  # what health() knows, explain() says
    found.sort(key=_severity)
    dispatchers = _dispatchers(parking)
    return ProducerExplanation(
        state=health.state,
        obstacles=tuple(found),
        brokers_connected=health.brokers_connected,
        buffered_bytes=health.buffered_bytes,
        buffer_limit_bytes=gate.limit_bytes,
        waiting_records=gate.waiting_count - gate.waiting_tasks,
        waiting_tasks=gate.waiting_tasks + gate.ready_count,
        parked_records=sum([len(dispatcher.waiting) for dispatcher in dispatchers]),
        requests_in_flight=requests_in_flight,
        transaction=health.transaction,
        oldest=steady(partial(_oldest, dispatchers)),
    )


def steady(look: Callable[[], T]) -> T | None:
    """Return what `look` finds; it is repeated if another thread changes what it looks at. None: time and again."""
    for _ in range(TRIES):
        try:
            return look()
        except RuntimeError:  # a dict, a deque or an ordered dict that changed while it was read
            continue
    return None


def _dispatchers(parking: Parking) -> list[TopicDispatcher]:
    return list(parking.topics.values())  # in one step of the interpreter, so another thread cannot come between


def _severity(obstacle: Obstacle) -> int:
    return SEVERITY.index(obstacle.kind)


def _oldest(dispatchers: Sequence[TopicDispatcher]) -> Explanation | None:
    """Return the explanation of the oldest record without an outcome. Others are looked at, and not explained."""
    sent: list[tuple[float, Callable[[], Explanation | None]]] = []
    for dispatcher in dispatchers:
        parked = dispatcher.oldest()
        if parked is not None:
            sent.append((parked.sent_at, partial(parked.explain, 0)))
        for queue in list(dispatcher.queues.values()):
            sent_at = queue.oldest_sent_at()
            if sent_at is not None:
                sent.append((sent_at, queue.explain_oldest))
    sent.sort(key=itemgetter(0))
    for _, explain_oldest in sent:
        oldest = explain_oldest()
        if oldest is not None and not oldest.is_settled:
            return oldest
    return None


def _of_cluster(client: ClusterClient) -> list[Obstacle]:
    """Return that no broker answers, if it is so."""
    failing_s = client.failing_s
    if client.brokers_connected and (failing_s is None or failing_s < UNREACHABLE_S):
        return []  # it may be one of them that does not: `of_brokers` says which
    text = unreachable_text(client)
    return [] if text is None else [Obstacle(kind=ObstacleKind.UNREACHABLE, text=text)]


def _of_parking(parking: Parking, now: float) -> list[Obstacle]:
    """Return what holds up records that are in no batch yet."""
    found: list[Obstacle] = []
    gate = parking.gate
    tasks = gate.waiting_tasks + gate.ready_count
    if gate.waiting_count or (gate.ready_count and gate.is_short):
        records = gate.waiting_count - gate.waiting_tasks
        text = (
            f"the buffer is full: {readable(gate.held_bytes)} of {readable(gate.limit_bytes)} of buffer_memory are taken;"
            f" {_plural(records, 'record')} and {_plural(tasks, 'task')} wait for room"
        )
        found.append(Obstacle(kind=ObstacleKind.BUFFER_FULL, text=text, count=records))
    unknown: list[tuple[TopicDispatcher, float]] = []
    serializing: list[tuple[TopicDispatcher, float]] = []
    for dispatcher in _dispatchers(parking):
        oldest = steady(dispatcher.oldest)
        if oldest is None:
            continue
        waited_s = now - oldest.waits_since()
        if oldest.waits is WaitsFor.METADATA or oldest.waits is WaitsFor.PARTITION:
            unknown.append((dispatcher, waited_s))
        elif oldest.waits is WaitsFor.SERIALIZER and waited_s > SLOW_S:
            serializing.append((dispatcher, waited_s))
    for dispatcher, waited_s in unknown[:NAMED]:
        why = f": {parking.why_unknown(dispatcher.topic)}"
        found.append(_of_topic(ObstacleKind.UNKNOWN_TOPIC, dispatcher, "metadata", waited_s, why))
    if len(unknown) > NAMED:
        count = sum([len(dispatcher.waiting) for dispatcher, _ in unknown[NAMED:]])
        text = f"{len(unknown) - NAMED} more topics wait for metadata, with {_plural(count, 'record')}"
        found.append(Obstacle(kind=ObstacleKind.UNKNOWN_TOPIC, text=text, count=count))
    for dispatcher, waited_s in serializing[:NAMED]:
        found.append(_of_topic(ObstacleKind.SERIALIZER, dispatcher, "a serializer", waited_s, ""))
    return found


def _of_topic(kind: ObstacleKind, dispatcher: TopicDispatcher, what: str, waited_s: float, why: str) -> Obstacle:
    count = len(dispatcher.waiting)
    text = f"topic {dispatcher.topic!r} has waited {waited_s:.1f} s for {what}, with {_plural(count, 'record')}{why}"
    return Obstacle(kind=kind, text=text, topic=dispatcher.topic, count=count)


def of_brokers(flushers: Iterable[BrokerFlusher], now: float) -> list[Obstacle]:
    """Return what holds up requests to each broker."""
    found: list[Obstacle] = []
    for flusher in flushers:
        wait = flusher.wait_here(now)
        node, aggregator = flusher.node_id, flusher.aggregator
        ready = len(steady(aggregator.waiting) or ())
        if wait is not None and wait.waits_for is WaitsFor.CONNECTION:
            if ready:
                left_s = wait.left_s(now)
                again = "" if left_s is None else f"; next dial in {left_s:.1f} s"
                text = f"{wait.why}, for {now - wait.since:.1f} s, which holds up {_plural(ready, 'partition')}{again}"
                found.append(Obstacle(kind=ObstacleKind.BROKER_DOWN, text=text, broker=node, count=ready))
            continue
        connection = flusher.connection
        if wait is not None and wait.waits_for is WaitsFor.THROTTLE:
            text = f"{wait.why}, for {wait.left_s(now) or 0.0:.1f} s more"
            found.append(Obstacle(kind=ObstacleKind.THROTTLED, text=text, broker=node, count=ready))
        elif connection is not None and connection.in_flight and now - connection.head_since > SLOW_S:
            text = (
                f"broker {node} has not answered the oldest of {_plural(connection.in_flight, 'request')}"
                f" for {now - connection.head_since:.1f} s"
            )
            found.append(Obstacle(kind=ObstacleKind.SLOW_BROKER, text=text, broker=node, count=ready))
    return found


def of_partitions(queues: Iterable[PartitionQueue], now: float) -> list[Obstacle]:
    """Return what holds up partitions whose records go to no broker at the moment."""
    held: dict[ObstacleKind, list[PartitionQueue]] = {}
    for queue in queues:
        waits_for = queue.held_by(now)
        kind = None if waits_for is None else OF_PARTITIONS.get(waits_for)
        if kind is not None:
            held.setdefault(kind, []).append(queue)
    return [_of_held(kind, those) for kind, those in held.items()]


OF_PARTITIONS: Final = {
    WaitsFor.CHASER: ObstacleKind.DRAINING,
    WaitsFor.LEADER: ObstacleKind.NO_LEADER,
    WaitsFor.BACKOFF: ObstacleKind.RETRYING,
    WaitsFor.PRODUCER_ID: ObstacleKind.PRODUCER_ID,
}
"""Not of a transaction: one obstacle for the whole id says what it waits for."""
TEXTS: Final = {
    ObstacleKind.DRAINING: "waits for the answers to what is in flight, then sends again in order",
    ObstacleKind.NO_LEADER: "has no leader",
    ObstacleKind.RETRYING: "backs off before its next attempt",
    ObstacleKind.PRODUCER_ID: "has no producer id",
}


def _of_held(kind: ObstacleKind, queues: list[PartitionQueue]) -> Obstacle:
    names = ", ".join([f"{queue.topic}-{queue.partition}" for queue in queues[:NAMED]])
    others = f" and {len(queues) - NAMED} others" if len(queues) > NAMED else ""
    why = ""
    for queue in queues:
        last = queue.texts.last_failure()
        if last:
            hint = queue.texts.hint()
            why = f"; last: {printable(last)}" + (f": {hint}" if hint else "")
            break
    topics = {queue.topic for queue in queues}
    text = (
        f"{_plural(len(queues), 'partition')} ({names}{others}) {TEXTS[kind] if len(queues) == 1 else _many(kind)}{why}"
    )
    return Obstacle(kind=kind, text=text, topic=queues[0].topic if len(topics) == 1 else None, count=len(queues))


def _many(kind: ObstacleKind) -> str:
    words = TEXTS[kind].replace("has ", "have ").replace("waits ", "wait ").replace("sends ", "send ")
    return words.replace("backs ", "back ").replace("its ", "their ")


def _plural(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
