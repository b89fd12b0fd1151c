"""`BrokerFlusher`: stage 4. One per broker: the window of requests on its connection.

It takes stamped batches, writes them as one Produce request in the same synchronous step, and judges answers inside
`data_received`, in order. It has no task: it runs from `call_soon`, from answers, and from the connection's wakes.

Chasers travel here too: an entry in the connection's FIFO that returns when everything sent before it has been answered,
or when the connection ends.

Invariants: what was sent is iterated, not what came back (a partition missing in an answer is a failed attempt); the
batches of an ended connection are told to each ledger in one event, before its chaser returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.connection.connection import BrokerConnection, ConnectionListener
from aiokprod.cluster.metadata.snapshot import BrokerNode, LeaderHint
from aiokprod.errors import AiokprodError, ConnectionLostError, ProtocolError, UnsupportedVersionError
from aiokprod.hooks import Server
from aiokprod.liveness import SoonCall, Stall
from aiokprod.pipeline.broker.aggregator import BrokerAggregator
from aiokprod.pipeline.partition.batch import Encoded
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.partition.ledger import Entry
from aiokprod.pipeline.partition.partition_queue import MESSAGE_TOO_LARGE, PartitionQueue, TransactionScope
from aiokprod.pipeline.partition.timeline import Happening
from aiokprod.pipeline.partition.verdicts import NO_ANSWER, Refusal, is_sent_again
from aiokprod.pipeline.partition.waits import Wait
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.records.batch import TRANSACTIONAL_BIT, batch_header
from aiokprod.records.compression import CODEC_BITS
from aiokprod.waiting import EventKind, WaitsFor
from aiokprod.wire.codes import NAMES
from aiokprod.wire.messages.produce import ProduceRequest
from aiokprod.wire.produce import (
    ProduceAnswer,
    ProduceOutcome,
    ProduceTopic,
    decode_produce,
    encode_produce,
    produce_answer_bytes,
)
from aiokprod.wire.reader import ZERO_UUID

PRODUCE = ProduceRequest.API_KEY
LAST_VERSION_BY_NAME = 12  # from 13 on Produce names topics by id

LAST_OFFSET = 2**63 - 1

CONNECTION: Final = WaitsFor.CONNECTION
WINDOW: Final = WaitsFor.WINDOW

OutcomeKey = tuple[str | bytes, int]
"""Topic (its name, or its id from version 13 on) and partition, by which an answer names what was sent."""


class SentRequest:
    """A Produce request on its way, with the partitions and batches that its answer is for."""

    __slots__ = ("records", "sent", "sent_at", "version")

    def __init__(
        self, version: int, sent: list[tuple[PartitionQueue, Entry, int, OutcomeKey]], sent_at: float, records: int
    ) -> None:
        self.version = version  # its answer has the same layout
        # The attempt (int) is kept beside the entry: a batch that was lost and sent again meanwhile is on another attempt,
        # and another answer to this one must not count for that (faults: I24). The key is what was named on the wire: the
        # ledger may have learnt another topic id by the time of the answer.
        self.sent = sent
        self.sent_at = sent_at
        self.records = records  # bounds the answer: how many of its record errors are read


class Chaser:
    """A marker that returns when nothing of its partition is in flight on this connection any more."""

    __slots__ = ("queue",)

    def __init__(self, queue: PartitionQueue) -> None:
        self.queue = queue


def _unwritten(taken: list[tuple[PartitionQueue, Entry]], now: float) -> SentRequest:
    sent: list[tuple[PartitionQueue, Entry, int, OutcomeKey]] = []
    for queue, entry in taken:
        sent.append((queue, entry, entry.attempt, (queue.topic, queue.partition)))
    return SentRequest(0, sent, now, 0)


class BrokerFlusher(ConnectionListener):
    """The writer of requests to one broker, and the judge of their answers."""

    def __init__(
        self, node_id: int, context: PipelineContext, client: ClusterClient, scope: TransactionScope | None = None
    ) -> None:
        self.node_id = node_id
        self.aggregator = BrokerAggregator(node_id, self.wake)
        # The one that requests are written to. `attach` sets it, `lost` clears it. A former one may still bring its `lost`.
        self.connection: BrokerConnection | None = None
        self._server: Server | None = None  # its address, for interceptors
        self._client = client  # asked for connections and metadata, told of leaders
        self._settings = context.settings
        self._scope = scope
        self._transactional_bit = 0 if scope is None else TRANSACTIONAL_BIT
        self._effects = context.effects
        self._loop = context.loop
        self._metrics = context.metrics
        self._own = context.metrics.broker(node_id)
        self._hooks = context.batch_hooks
        self._failing = context.failing
        self._defects = context.defects
        # A look: a thousand partitions that become ready in one turn cost one.
        self._look = SoonCall(context.loop, self._woken)
        self._ended = False
        self.since = self._loop.time()  # when it last had a connection, or was made: for explanations

    # ------------------------------------------------------------------ waking
    def wake(self, somebody_waits: bool) -> None:
        """Look for work on the next turn of the loop; for a waiter only if nothing is in flight there."""
        if self._look.handle is not None or self._ended:
            return
        connection = self.connection
        if somebody_waits and connection is not None and connection.in_flight:
            # The next answer looks at the urged batches anyway, and until then they fill up. Sent at once, each record that
            # a task awaits would be a request of its own.
            return
        # Never from within the call: it may come from `send`, and the records of the same turn go into the same request.
        self._look.set()

    def _woken(self) -> None:
        self._guard(self._pump, False)

    def attach(self, connection: BrokerConnection) -> None:
        """Take a connection to this broker that is open."""
        if self.connection is not connection:
            self.connection = connection
            connection.listener = self
            self._server = Server(
                broker=self.node_id,
                host=connection.host,
                port=connection.port,
                cluster_id=self._client.snapshot.cluster_id,
            )
        self._guard(self._pump, True)

    def _guard(self, step: Callable[[bool], None], urgent: bool) -> None:
        try:
            step(urgent)
        except BaseException as bug:
            # The callers are the loop and the connection, and neither fails the producer: it would go on with a ledger that
            # heard half of an answer, and its records would never settle (faults: L15). Nor does a KeyboardInterrupt end
            # every program: a notebook's loop goes on.
            self._effects.crashed(bug)
            if not isinstance(bug, Exception):
                raise

    # ------------------------------------------------------------------ writing
    def waits_for(self) -> WaitsFor | None:
        """Return what the next request waits for; None: it can be written, if there is work. From any thread."""
        connection = self.connection
        if connection is None:
            return CONNECTION
        held = connection.waits_for
        if held is not None:
            return held
        return WINDOW if connection.in_flight >= self._settings.requests_in_flight else None

    def _pump(self, urgent: bool) -> None:
        """Write requests as long as there is a window and work."""
        if self._ended:
            return
        if not self._is_connected():
            if self.aggregator.has_work():
                self._dial()
            return
        settings = self._settings
        # Records stay in their batches as long as something is waited for: there they can still be recalled or expire unsent.
        while self.waits_for() is None:
            connection = self.connection
            assert connection is not None
            self._effects.begin()  # our ledgers are walked: what sends meanwhile is put off
            try:
                taken = self.aggregator.collect(
                    self._loop.time(), wall_ms(), urgent or connection.in_flight == 0, settings.max_request_bytes
                )
            finally:
                self._effects.end()
            if not taken:
                return
            # Stamped by now: no return, no await and no call of user code until they are in the transport.
            request = self._write(connection, taken)
            if request is not None and settings.acks == 0:
                self._unanswered(request)

    def _is_connected(self) -> bool:
        """Return whether there is a connection. One that is closing is as good as none: its `lost` may come a turn later."""
        # One that is retired counts: what is in flight there is answered before another one is dialled.
        return self.connection is not None and self.connection.is_open

    def _dial(self) -> None:
        """Take a connection that is open, or have one dialled, which ends in `attach`."""
        # Dialled only for work: a broker whose partitions have no records costs no connection.
        connection = self._client.produce_connection(self.node_id)
        if connection is not None:
            self.attach(connection)
        else:
            self._client.dial(self.node_id)

    def _write(self, connection: BrokerConnection, taken: list[tuple[PartitionQueue, Entry]]) -> SentRequest | None:
        """Write one request; None if the connection has ended, which the ledgers have been told."""
        settings, metrics, server = self._settings, self._metrics, self._server
        now = self._loop.time()
        try:
            version = self._version(connection, taken)
        except UnsupportedVersionError as error:
            # Version 13 alone, say, and a topic whose id no metadata has told. Nothing was written; the records wait for
            # another connection, or another leader, until their deadline.
            self.lost(connection, [(_unwritten(taken, now), False)], error)
            connection.close(error)
            return None
        compressed_bytes = records = 0
        by_id = version > LAST_VERSION_BY_NAME
        by_topic: dict[str | bytes, ProduceTopic] = {}
        sent: list[tuple[PartitionQueue, Entry, int, OutcomeKey]] = []
        for queue, entry in taken:
            # Of a topic that was made again some partitions may still have the old id (faults: T6): two ids of one name in
            # one request. They are named as two topics, and each answer is looked up by the id that was sent.
            named: str | bytes = queue.ledger.topic_id if by_id else queue.topic
            topic = by_topic.get(named)
            if topic is None:
                topic = by_topic[named] = ProduceTopic(queue.topic, queue.ledger.topic_id, [])
            sent.append((queue, entry, entry.attempt, (named, queue.partition)))
            entry.sent_at, entry.sent_to = now, self.node_id
            encoded, batch = entry.encoded, entry.batch
            assert isinstance(encoded, Encoded)
            section = encoded.section
            # The header is made for each attempt, from the entry: a batch that was bumped or closed up has other numbers in
            # its next one, with the same section. `entry.count`, not the batch's: after a split they differ.
            header = batch_header(
                section,
                count=entry.count,
                attributes=CODEC_BITS[encoded.codec] | self._transactional_bit,
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
            counters = queue.counters()
            counters.batches_sent.add(1)
            counters.sent_bytes.add(encoded.size_bytes)
            batch.is_written = True
            batch.last_sent_at = now
            batch.server = server
            if not batch.first_sent_at:
                batch.first_sent_at = now
            if self._hooks is not None:
                self._hooks.sent(batch, entry.count, encoded.size_bytes, entry.attempt, self.node_id, now)
            if entry.attempt > 1:
                metrics.batches_resent.add(1)
            else:
                metrics.batch_records.record(entry.count)
                metrics.queue_seconds.record(now - batch.opened_at)
        body = encode_produce(
            version, settings.acks, settings.broker_timeout_ms, list(by_topic.values()), self._transactional_id()
        )
        request = SentRequest(version, sent, now, records)
        metrics.batch_compressed_bytes.add(compressed_bytes)
        metrics.requests_sent.add(1)
        self._own.requests_sent.add(1)
        metrics.batches_sent.add(len(taken))
        timeout_s = settings.request_timeout_s
        if self._scope is not None:
            timeout_s = self._scope.answer_timeout_s([queue for queue, _ in taken], timeout_s)
        try:
            connection.send(
                PRODUCE,
                version,
                body,
                request,
                timeout_s=timeout_s,
                expects_answer=settings.acks != 0,
                max_answer_bytes=produce_answer_bytes(len(sent), records),
            )
        except ConnectionLostError as lost:
            # The transport began to close in this same turn, and nothing was handed to it. The batches are stamped, so
            # the ledgers must hear of it; not as written, else they would be ambiguous for nothing.
            self.lost(connection, [(request, False)], lost)
            return None
        return request

    def _unanswered(self, request: SentRequest) -> None:
        """Settle a request with acks=0: written is delivered.

        Called from the loop that writes: an answer told from within `send` would write the next request, and so on, one
        deeper for each.
        """
        # Nothing more is known: a broker that refuses such a batch closes the connection, and does not say why
        # (broker: 5.1, faults: P26).
        now, now_ms = self._loop.time(), wall_ms()
        self._metrics.request_seconds.record(now - request.sent_at)
        self._own.request_seconds.record(now - request.sent_at)
        self._effects.begin()
        try:
            for queue, entry, attempt, _ in request.sent:
                queue.answer(entry, attempt, 0, -1, -1, (), now, now_ms)
        finally:
            self._effects.end()

    def _transactional_id(self) -> str | None:
        return None if self._scope is None else self._scope.transactional_id

    def _version(self, connection: BrokerConnection, taken: list[tuple[PartitionQueue, Entry]]) -> int:
        highest = ProduceRequest.MAX_VERSION
        for queue, _ in taken:
            # Version 13 names topics by id only. One partition without an id, of metadata that told none, decides for the
            # whole request, as a request has one version.
            if queue.ledger.topic_id == ZERO_UUID:
                highest = LAST_VERSION_BY_NAME
                break
        # Of this connection: in a rolling upgrade the brokers differ, and the same broker after its restart (faults: B14).
        if self._scope is None:
            return connection.versions.pick(PRODUCE, ProduceRequest.MIN_VERSION, highest)
        # One request of the second version wedges the id where the first one is in force (broker: 10.1).
        first, last = self._scope.produce_versions
        return connection.versions.pick(PRODUCE, first, min(highest, last))

    # ------------------------------------------------------------------ chasing
    def chase(self, queue: PartitionQueue) -> bool:
        """Put a chaser behind what is in flight; False if none can be, or nothing of the partition is in flight.

        A connection that is closing takes none, though its batches are in flight until `lost` is told: the queue knows, and
        waits for that (`PartitionQueue.returned`).
        """
        connection = self.connection
        if connection is None or not connection.is_open or not queue.ledger.is_flying:
            return False
        # Behind what is in flight, in the same FIFO: the broker serves a connection one request at a time and answers in
        # order (broker: 4.5, 4.8), so nothing of the partition can be appended any more once the chaser is back.
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
        self._own.request_seconds.record(now - request.sent_at)
        try:
            answer = decode_produce(body, request.version, len(request.sent), request.records)
            outcomes = self._sort(request, answer.outcomes)
        except ProtocolError as error:
            # The bytes were written and their answer cannot be read: every batch of it may be in the log. First this
            # request, which the connection counts as answered, then `close`, which tells those behind it.
            broken = error.with_traceback(None)  # it is kept, and would keep the answer
            self.lost(connection, [(request, True)], broken)
            connection.close(broken)
            return
        if answer.throttle_time_ms > 0:
            # A broker mutes the connection after it has answered (KIP-219): what is written now would wait in its socket,
            # and seem slow. Muted before the answer is judged: the next request comes after it (faults: P25).
            self._metrics.throttle_seconds.add(answer.throttle_time_ms / 1000)
            connection.mute(answer.throttle_time_ms / 1000)
        effects = self._effects
        effects.begin()
        try:
            self._judge(request, answer, outcomes, now, now_ms)
        finally:
            effects.end()
        # After the effects: a partition that they rewound, and records that they gave room, go into the next request.
        self._pump(True)

    def _judge(
        self,
        request: SentRequest,
        answer: ProduceAnswer,
        outcomes: dict[OutcomeKey, ProduceOutcome],
        now: float,
        now_ms: int,
    ) -> None:
        """Tell each ledger its part of the answer.

        The effects come after the last of them: the room that one frees may be granted to a record of a partition whose
        own answer has not been judged yet.
        """
        refused: dict[OutcomeKey, tuple[int, ...]] = {}
        for outcome in answer.outcomes:
            if outcome.error_code:
                refused = self._note_refusals(request, answer, outcomes)
                break
        # What was sent, not what came back: a broker may leave a partition out (faults: H9), and name one that was not
        # asked for (faults: H11), and chooses the order of the topics (broker: 4.9).
        for queue, entry, attempt, key in request.sent:
            judged = outcomes.get(key)
            if judged is None:
                # No verdict, so the batch may be in the log: ambiguous, and sent again under the same numbers (R1.2).
                queue.texts.note(Refusal(NO_ANSWER, "the broker's answer left the partition out", (), 0))
                left_out = "got an answer that left its partition out"
                self._note_failed(queue, entry, attempt, request.sent_at, NO_ANSWER, left_out, now)
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
        """Keep the broker's words, and tell the client the new leaders; return the records named, by partition.

        Before the ledgers hear of the answer: their errors have the broker's words, and the leader that a hint named is
        there when the rewind looks for one (faults: P7).

        The hints of the whole answer are one change of what is known of the cluster: each change is told to all
        partitions of its topics, so that one for each partition would cost the square of them.
        """
        named: dict[OutcomeKey, tuple[int, ...]] = {}
        now = self._loop.time()
        hints: list[tuple[PartitionQueue, ProduceOutcome]] = []
        for queue, entry, attempt, key in request.sent:
            outcome = outcomes.get(key)
            if outcome is None or not outcome.error_code:
                continue
            refusal = Refusal(outcome.error_code, outcome.error_message, outcome.record_errors, entry.count)
            named[key] = refusal.named
            queue.texts.note(refusal)
            # As the ledger does with the code: of an earlier attempt the refusal says nothing of this one.
            if attempt == entry.attempt:
                entry.refusal = refusal
            parts = "; it goes again in parts" if refusal.code == MESSAGE_TOO_LARGE and entry.count > 1 else ""
            how = f"was answered {refusal.text()}{parts}"
            self._note_failed(queue, entry, attempt, request.sent_at, refusal.code, how, now)
            # -1: no hint, as from brokers before Produce v10 (broker: 7.7). A hint with leader -1 counts: there
            # is none, and the epoch shows that this is news (broker: 7.8).
            if outcome.leader_epoch >= 0:
                hints.append((queue, outcome))
        if hints:
            self._hint_leaders(hints, answer.endpoints)
        return named

    def _hint_leaders(
        self, hints: list[tuple[PartitionQueue, ProduceOutcome]], endpoints: Sequence[tuple[int, str, int, str | None]]
    ) -> None:
        """Tell the client the leaders of these partitions, as the broker said in its answer (KIP-951)."""
        nodes: dict[int, BrokerNode] = {}
        for node_id, host, port, rack in endpoints:
            # One endpoint serves all hints that name its node (broker: 7.7); of two for one node the first counts.
            if node_id not in nodes:
                nodes[node_id] = BrokerNode(id=node_id, host=host, port=port, rack=rack)
        self._client.hint_leaders(
            [
                LeaderHint(
                    queue.topic, queue.partition, outcome.leader_id, outcome.leader_epoch, nodes.get(outcome.leader_id)
                )
                for queue, outcome in hints
            ]
        )

    def _sort(self, request: SentRequest, outcomes: list[ProduceOutcome]) -> dict[OutcomeKey, ProduceOutcome]:
        """Return the outcomes by topic and partition; the first of two counts (faults: H10).

        An acknowledgement without an offset is no answer, and neither is an offset behind which the records of the batch
        would have none (faults: H12).
        """
        # Checked for the whole answer before any ledger hears of it: an answer that lies once is not believed at all.
        last = LAST_OFFSET - request.records
        by_id = request.version > LAST_VERSION_BY_NAME
        found: dict[OutcomeKey, ProduceOutcome] = {}
        for outcome in outcomes:
            if outcome.base_offset > last or (outcome.error_code == 0 and outcome.base_offset < 0):
                raise ProtocolError(f"broker {self.node_id} acknowledged a batch at offset {outcome.base_offset}")
            found.setdefault((outcome.topic_id if by_id else outcome.topic, outcome.partition), outcome)
        return found

    def lost(self, connection: BrokerConnection, tokens: list[tuple[object, bool]], cause: Exception) -> None:
        """Tell each ledger of all its batches on a connection that ended, at once; then the chasers return."""
        self._guard(lambda _: self._lost(connection, tokens, cause), False)

    def _lost(self, connection: BrokerConnection, tokens: list[tuple[object, bool]], cause: Exception) -> None:
        # Not if another connection has been attached meanwhile, and not yet for an answer that could not be read: then the
        # connection is closed right after, and tells its other requests by another call of this.
        if self.connection is connection and not connection.is_open:
            self.connection = None
            self.since = self._loop.time()
        # By partition: up to five batches of one may be in flight, in as many requests (faults: N3). Told request by request,
        # a chaser could come back between two of them, to a ledger with batches in flight.
        fates: dict[PartitionQueue, list[tuple[Entry, int, bool]]] = {}
        now, why = self._loop.time(), f"has no answer: {cause.message if isinstance(cause, AiokprodError) else cause}"
        chasers: list[Chaser] = []
        for token, written in tokens:
            if isinstance(token, SentRequest):
                for queue, entry, attempt, _ in token.sent:
                    fates.setdefault(queue, []).append((entry, attempt, written))
                    how = why if written else f"was not written: {cause}"
                    self._note_failed(queue, entry, attempt, token.sent_at, NO_ANSWER, how, now)
            elif isinstance(token, Chaser):
                chasers.append(token)
        effects = self._effects
        effects.begin()
        try:
            for queue, lost in fates.items():
                queue.texts.note_cause(cause)
                queue.lost(lost)
            # Behind all losses: a chaser that is back leads to the rewind, which needs nothing in flight.
            for chaser in chasers:
                effects.later(chaser.queue.returned)
            # A broker that went away leads nothing any more (faults: B1, B2). An idle connection that ended, which brokers
            # do (faults: N8), says nothing of the cluster.
            if fates:
                effects.later(partial(self._client.refresh, f"lost the connection to broker {self.node_id}"))
        finally:
            effects.end()
        self.wake(False)

    def _note_failed(
        self, queue: PartitionQueue, entry: Entry, attempt: int, sent_at: float, code: int, how: str, now: float
    ) -> None:
        """Note a failed attempt for explanations, as one text for the attempt and its end, for the log, and for the metrics."""
        if attempt != entry.attempt:
            return  # a later attempt is under way, and this one was told before
        try:
            self._note_attempt(queue, entry, attempt, sent_at, code, how, now)
        except Exception as bug:
            self._defects.caught("the note of a failed attempt", bug)

    def _note_attempt(
        self, queue: PartitionQueue, entry: Entry, attempt: int, sent_at: float, code: int, how: str, now: float
    ) -> None:
        self._metrics.attempt_failed("NO_ANSWER" if code == NO_ANSWER else NAMES.get(code))
        if entry.is_dead:
            return  # its story is over
        ranges = entry.ranges
        if not ranges:
            return  # every record has its outcome, so there is nothing to tell
        happening = Happening(
            now,
            EventKind.ATTEMPT_FAILED,
            how,
            self.node_id,
            ranges[0][0],
            ranges[-1][1],
            f"attempt {attempt} to broker {self.node_id}",
            sent_at,
        )
        entry.batch.happened(happening)
        if is_sent_again(code):
            self._failing.note(
                queue.topic, queue.partition, queue.ledger, self.node_id, code, how, entry.failures + 1, now
            )
        elif code != MESSAGE_TOO_LARGE or entry.count == 1:  # else it goes again in parts
            self._failing.note_refused(queue.topic, code, queue.counters(), now)

    def writable(self, connection: BrokerConnection) -> None:
        self._guard(self._pump, True)

    def stall(self) -> Stall | None:
        """Return a stall if there is work, nothing is in flight, and no look at the work is due."""
        if self._ended or not self.aggregator.has_work():
            return None
        connection = self.connection
        if connection is None or not connection.is_open:
            if self._client.dial_state(self.node_id).is_pending:
                return None  # it ends in `attach`, or in `dial_failed`, which looks again
        elif connection.in_flight or not connection.is_writable:
            return None  # an answer, the end of a throttle or an empty buffer looks again
        what = "partitions are ready, nothing is in flight to their broker, and no look at them comes"
        return Stall(what, self, self._look.handle, self._look.set_again)

    # ------------------------------------------------------------------ explaining
    def wait_here(self, now: float) -> Wait | None:
        """Return the words for what the next request waits for (`waits_for`); None: nothing. From any thread."""
        connection, held, node = self.connection, self.waits_for(), self.node_id
        if held is None:
            return None
        if held is CONNECTION or connection is None:
            dial = self._client.dial_state(node)
            last = f": {dial.last_error}" if dial.last_error else ""
            is_due = dial.next_dial_at > now
            return Wait(
                CONNECTION,
                f"broker {node} is {'not connected' if is_due or not dial.is_pending else 'being connected'}{last}",
                self.since,
                dial.next_dial_at if is_due else -1.0,
                node,
            )
        if held is WaitsFor.THROTTLE:
            why = f"broker {node} has throttled the producer"
            return Wait(held, why, connection.last_used, connection.muted_until, node)
        if held is WINDOW:
            why = f"broker {node} owes answers to {connection.in_flight} requests, as many as may be in flight"
            return Wait(held, why, connection.head_since, broker=node)
        return Wait(held, f"broker {node} takes bytes slower than they come", self.since, broker=node)

    def end(self) -> None:
        """Stop writing: the producer closes."""
        self._ended = True

    def __repr__(self) -> str:
        return f"<BrokerFlusher {self.node_id}: {self.connection}, {self.aggregator}>"
