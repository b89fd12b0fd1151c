"""`BrokerFlusher`: stage 4. One per broker: the window of requests on its connection.

It takes stamped batches, writes them as one Produce request in the same synchronous step, and judges answers inside
`data_received`, in order. It has no task: it runs from `call_soon`, from answers, and from the connection's wakes.

Chasers travel here too: an entry in the connection's FIFO that returns when everything of before has been answered, or
when the connection ends.

Invariants: what was sent is iterated, not what came back (a partition missing in an answer is a failed attempt); the
batches of an ended connection are told to each ledger in one event, before its chaser returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from aiokprod.cluster.connection import BrokerConnection, ConnectionListener
from aiokprod.errors import ConnectionLostError, ProtocolError
from aiokprod.metrics import Metrics
from aiokprod.pipeline.encoded import Encoded
from aiokprod.pipeline.ledger import NO_TOPIC_ID, Entry
from aiokprod.pipeline.ports import House, Queue, ReadySet, Route
from aiokprod.pipeline.refusal import Refusal
from aiokprod.pipeline.verdicts import NO_ANSWER
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.records.batch import batch_header
from aiokprod.records.compression import CODEC_BITS
from aiokprod.wire.messages.produce import ProduceRequest
from aiokprod.wire.produce import (
    ProduceAnswer,
    ProduceOutcome,
    ProduceTopic,
    decode_produce,
    encode_produce,
    produce_answer_bytes,
)

PRODUCE = ProduceRequest.API_KEY
LAST_VERSION_BY_NAME = 12  # from 13 on Produce names topics by id

LAST_OFFSET = 2**63 - 1


OutcomeKey = tuple[str | bytes, int]
"""Topic (its name, or its id from version 13 on) and partition: how an answer names what was sent."""


class SentRequest:
    """A Produce request on its way: what to tell whom when its answer comes."""

    __slots__ = ("records", "sent", "sent_at", "version")

    def __init__(
        self, version: int, sent: list[tuple[Queue, Entry, int, OutcomeKey]], sent_at: float, records: int
    ) -> None:
        self.version = version
        self.sent = sent  # int: the attempt
        self.sent_at = sent_at
        self.records = records


class Chaser:
    """Returns when nothing of its partition is in flight on this connection any more."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        self.queue = queue


class BrokerFlusher(ConnectionListener, Route):
    """Writes requests of one broker and judges the answers."""

    def __init__(
        self, node_id: int, house: House, aggregator: Callable[[Callable[[bool], None]], ReadySet], metrics: Metrics
    ) -> None:
        self.node_id = node_id
        self.aggregator = aggregator(self.wake)
        self.connection: BrokerConnection | None = None
        self._settings = house.settings
        self._house = house
        self._loop = house.loop
        self._metrics = metrics
        self._is_woken = False
        self._ended = False

    # ------------------------------------------------------------------ waking
    def wake(self, somebody_waits: bool) -> None:
        """Look for work on the next turn of the loop; for a waiter only if nothing is in flight there."""
        if self._is_woken or self._ended:
            return
        connection = self.connection
        if somebody_waits and connection is not None and connection.in_flight:
            return
        self._is_woken = True
        self._loop.call_soon(self._woken)

    def _woken(self) -> None:
        self._is_woken = False
        self._guard(self._pump, False)

    def attach(self, connection: BrokerConnection) -> None:
        """A connection to this broker is open."""
        if self.connection is not connection:
            self.connection = connection
            connection.listener = self
        self._guard(self._pump, True)

    def _guard(self, step: Callable[[bool], None], urgent: bool) -> None:
        try:
            step(urgent)
        except Exception as bug:
            self._house.crashed(bug)

    # ------------------------------------------------------------------ writing
    def _pump(self, urgent: bool) -> None:
        """Write requests as long as there is a window and work."""
        if self._ended:
            return
        connection = self.connection
        if connection is None or not connection.is_open:
            if self.aggregator.has_work():
                self._house.dial(self.node_id)
            return
        settings = self._settings
        while connection.is_writable and connection.in_flight < settings.requests_in_flight:
            taken = self.aggregator.collect(
                self._loop.time(), wall_ms(), urgent or connection.in_flight == 0, settings.max_request_bytes
            )
            if not taken:
                return
            request = self._write(connection, taken)
            if request is not None and settings.acks == 0:
                self._unanswered(request)

    def _write(self, connection: BrokerConnection, taken: list[tuple[Queue, Entry]]) -> SentRequest | None:
        """Write one request; None if the connection has ended, which the ledgers have been told."""
        settings, metrics = self._settings, self._metrics
        version = self._version(connection, taken)
        now = self._loop.time()
        compressed_bytes = records = 0
        by_id = version > LAST_VERSION_BY_NAME
        by_topic: dict[str | bytes, ProduceTopic] = {}
        sent: list[tuple[Queue, Entry, int, OutcomeKey]] = []
        for queue, entry in taken:
            # Partitions of a topic made anew may still carry the old id: the answer is looked up by what was sent.
            named: str | bytes = queue.ledger.topic_id if by_id else queue.topic
            topic = by_topic.get(named)
            if topic is None:
                topic = by_topic[named] = ProduceTopic(queue.topic, queue.ledger.topic_id, [])
            sent.append((queue, entry, entry.attempt, (named, queue.partition)))
            encoded, batch = entry.encoded, entry.batch
            assert isinstance(encoded, Encoded)
            section = encoded.section
            header = batch_header(
                section,
                count=entry.count,
                attributes=CODEC_BITS[encoded.codec],
                base_timestamp_ms=batch.base_timestamp_ms,
                max_timestamp_ms=batch.max_timestamp_ms,
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                base_sequence=entry.first_sequence,
            )
            topic.partitions.append((queue.partition, (header, section), encoded.size_bytes))
            compressed_bytes += len(section)
            records += entry.count
            metrics.batch_bytes.record(encoded.size_bytes)
            if entry.attempt > 1:
                metrics.batches_resent.add(1)
            else:
                metrics.batch_records.record(entry.count)
                metrics.queue_seconds.record(now - batch.opened_at)
        body = encode_produce(version, settings.acks, settings.broker_timeout_ms, list(by_topic.values()))
        request = SentRequest(version, sent, now, records)
        metrics.batch_compressed_bytes.add(compressed_bytes)
        metrics.requests_sent.add(1)
        metrics.batches_sent.add(len(taken))
        try:
            connection.send(
                PRODUCE,
                version,
                body,
                request,
                timeout_s=settings.request_timeout_s,
                expects_answer=settings.acks != 0,
                max_answer_bytes=produce_answer_bytes(len(sent), records),
            )
        except ConnectionLostError as lost:
            self.lost(connection, [(request, False)], lost)
            return None
        return request

    def _unanswered(self, request: SentRequest) -> None:
        """acks=0: written is delivered. Called from the loop that writes: an answer told from within `send` would write the
        next request, and so on, one deeper for each."""
        now, now_ms = self._loop.time(), wall_ms()
        self._metrics.request_seconds.record(now - request.sent_at)
        self._house.effects.begin()
        try:
            for queue, entry, attempt, _ in request.sent:
                queue.answer(entry, attempt, 0, -1, -1, (), now, now_ms)
        finally:
            self._house.effects.end()

    def _version(self, connection: BrokerConnection, taken: list[tuple[Queue, Entry]]) -> int:
        highest = ProduceRequest.MAX_VERSION
        for queue, _ in taken:
            if queue.ledger.topic_id == NO_TOPIC_ID:
                highest = LAST_VERSION_BY_NAME
                break
        return connection.versions.pick(PRODUCE, ProduceRequest.MIN_VERSION, highest)

    # ------------------------------------------------------------------ chasing
    def chase(self, queue: Queue) -> bool:
        """Put a chaser behind what is in flight; False if none can be, or nothing of the partition is in flight.

        A connection that is closing takes none, though its batches are in flight until `lost` is told: the queue knows, and
        waits for that (`PartitionQueue.returned`).
        """
        connection = self.connection
        if connection is None or not connection.is_open or not queue.ledger.is_flying:
            return False
        connection.chase(Chaser(queue))
        return True

    def chaser_returned(self, connection: BrokerConnection, token: object) -> None:
        assert isinstance(token, Chaser)
        self._guard(lambda _: token.queue.returned(), False)

    # ------------------------------------------------------------------ judging
    def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
        assert isinstance(token, SentRequest)
        self._guard(lambda _: self._answered(connection, token, body), True)

    def _answered(self, connection: BrokerConnection, request: SentRequest, body: memoryview) -> None:
        now, now_ms = self._loop.time(), wall_ms()
        self._metrics.request_seconds.record(now - request.sent_at)
        try:
            answer = decode_produce(body, request.version, len(request.sent), request.records)
            outcomes = self._sort(request, answer.outcomes)
        except ProtocolError as error:
            broken = error.with_traceback(None)  # it is kept, and would keep the answer
            self.lost(connection, [(request, True)], broken)
            connection.close(broken)
            return
        if answer.throttle_time_ms > 0:
            self._metrics.throttle_seconds.add(answer.throttle_time_ms / 1000)
            connection.mute(answer.throttle_time_ms / 1000)
        effects = self._house.effects
        effects.begin()
        try:
            self._judge(request, answer, outcomes, now, now_ms)
        finally:
            effects.end()
        self._pump(True)

    def _judge(
        self,
        request: SentRequest,
        answer: ProduceAnswer,
        outcomes: dict[OutcomeKey, ProduceOutcome],
        now: float,
        now_ms: int,
    ) -> None:
        """Tell each ledger. What that leads to comes after the last of them: the room it frees may be granted to a record
        of a partition whose own answer has not been judged yet."""
        refused: dict[OutcomeKey, tuple[int, ...]] = {}
        for outcome in answer.outcomes:
            if outcome.error_code:
                refused = self._note_refusals(request, answer, outcomes)
                break
        for queue, entry, attempt, key in request.sent:
            judged = outcomes.get(key)
            if judged is None:
                queue.texts.note(Refusal(NO_ANSWER, "the broker's answer left the partition out", (), 0))
                queue.answer(entry, attempt, NO_ANSWER, -1, -1, (), now, now_ms)
                continue
            queue.answer(
                entry,
                attempt,
                judged.error_code,
                judged.base_offset,
                judged.log_append_time_ms,
                refused.get(key, ()) if refused else (),
                now,
                now_ms,
            )

    def _note_refusals(
        self, request: SentRequest, answer: ProduceAnswer, outcomes: dict[OutcomeKey, ProduceOutcome]
    ) -> dict[OutcomeKey, tuple[int, ...]]:
        """Before the ledgers hear of it: the broker's words, and who leads now. Returns the records named, by partition.

        The hints of the whole answer are one change of what is known of the cluster: each change is told to all
        partitions of its topics, so that one for each partition would cost the square of them.
        """
        named: dict[OutcomeKey, tuple[int, ...]] = {}
        hints: list[tuple[Queue, ProduceOutcome]] = []
        for queue, entry, attempt, key in request.sent:
            outcome = outcomes.get(key)
            if outcome is None or not outcome.error_code:
                continue
            refusal = Refusal(outcome.error_code, outcome.error_message, outcome.record_errors, entry.count)
            named[key] = refusal.named
            queue.texts.note(refusal)
            if attempt == entry.attempt:
                entry.refusal = refusal
            if outcome.leader_epoch >= 0:
                hints.append((queue, outcome))
        if hints:
            self._house.leader_hints(hints, answer.endpoints)
        return named

    def _sort(self, request: SentRequest, outcomes: list[ProduceOutcome]) -> dict[OutcomeKey, ProduceOutcome]:
        """By topic and partition; the first of two counts. An acknowledgement without an offset is no answer, and neither
        is an offset behind which the records of the batch have none."""
        last = LAST_OFFSET - request.records
        by_id = request.version > LAST_VERSION_BY_NAME
        found: dict[OutcomeKey, ProduceOutcome] = {}
        for outcome in outcomes:
            if outcome.base_offset > last or (outcome.error_code == 0 and outcome.base_offset < 0):
                raise ProtocolError(f"broker {self.node_id} acknowledged a batch at offset {outcome.base_offset}")
            found.setdefault((outcome.topic_id if by_id else outcome.topic, outcome.partition), outcome)
        return found

    def lost(self, connection: BrokerConnection, tokens: list[tuple[object, bool]], cause: Exception) -> None:
        """The connection ended: each ledger hears of all its batches at once, then the chasers return."""
        if self.connection is connection and not connection.is_open:
            self.connection = None
        self._guard(lambda _: self._lost(tokens, cause), False)

    def _lost(self, tokens: list[tuple[object, bool]], cause: Exception) -> None:
        fates: dict[Queue, list[tuple[Entry, int, bool]]] = {}
        chasers: list[Chaser] = []
        for token, written in tokens:
            if isinstance(token, SentRequest):
                for queue, entry, attempt, _ in token.sent:
                    fates.setdefault(queue, []).append((entry, attempt, written))
            elif isinstance(token, Chaser):
                chasers.append(token)
        effects = self._house.effects
        effects.begin()
        try:
            for queue, lost in fates.items():
                queue.texts.note_cause(cause)
                queue.lost(lost)
            for chaser in chasers:
                effects.later(chaser.queue.returned)
            if fates:
                effects.later(partial(self._house.want_metadata, f"lost the connection to broker {self.node_id}"))
        finally:
            effects.end()
        self.wake(False)

    def writable(self, connection: BrokerConnection) -> None:
        self._guard(self._pump, True)

    def end(self) -> None:
        """No more work: the producer closes."""
        self._ended = True

    def __repr__(self) -> str:
        return f"<BrokerFlusher {self.node_id}: {self.connection}, {self.aggregator}>"
