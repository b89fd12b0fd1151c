"""Defects on the way of a record: state changes with effects in their middle, order, threads, answers, metadata."""

from __future__ import annotations

from .needs import (
    both,
    expires_soon,
    fills_the_buffer,
    has_argument,
    has_bad_records,
    has_brokers,
    has_fault,
    has_faults,
    has_option,
    has_value,
    lingers,
)
from .patching import Change, Defect

LOSES = (
    "never settled",
    "flush hangs",
    "unsettled after close",
    "bytes are still charged",
    "settled late",
    "bytes below zero",
)

DEFECTS = (
    Defect(
        "room_granted_at_once",
        "bytes that come free admit a waiting record in the middle of whatever state change freed them",
        (
            Change(
                "pipeline.sending.parking",
                "    def _room_is_free(self) -> None:\n        self.effects.room_is_due = True",
                "    def _room_is_free(self) -> None:\n        self.gate.grant()",
            ),
        ),
        (*LOSES, "phantom", "told otherwise", "the outcome changed", "reordered", "producer failed"),
        fills_the_buffer,
        theme="expiry",
    ),
    Defect(
        "expired_batch_stays_open",
        "an open batch expires whole, and takes the record that its room admits: it is never sent and never settles",
        (
            Change(
                "pipeline.partition.partition_queue",
                "            if self.open_batch is not None and self.open_batch.is_finished:\n",
                "            self._room.grant()\n"
                "            if self.open_batch is not None and self.open_batch.is_finished:\n",
            ),
        ),
        (*LOSES, "the world crashes"),  # explain() finds a finished batch without an outcome
        both(fills_the_buffer, expires_soon),
        theme="expiry",
    ),
    Defect(
        "sealed_with_what_expires",
        "room is granted between two actions of a ledger: a batch is sealed with records that are about to fail",
        (
            Change(
                "pipeline.partition.partition_queue",
                "            for action in actions:\n",
                "            for action in actions:\n"
                "                if self.open_batch is not None and self.open_batch.is_finished:\n"
                "                    self.open_batch = None\n"
                "                self._room.grant()\n",
            ),
        ),
        (*LOSES, "phantom", "told otherwise", "the outcome changed"),
        both(fills_the_buffer, expires_soon),
        theme="expiry",
    ),
    Defect(
        "unanswered_requests_recurse",
        "with acks=0 each request writes the next one from within",
        (
            Change(
                "pipeline.broker.flusher",
                "            if request is not None and settings.acks == 0:\n                self._unanswered(request)\n",
                "",
            ),
            Change(
                "pipeline.broker.flusher",
                "        now, now_ms = self._loop.time(), wall_ms()\n"
                "        self._metrics.request_seconds.record(now - request.sent_at)\n"
                "        self._own.request_seconds.record(now - request.sent_at)\n"
                "        try:\n            answer",
                "        if self._settings.acks == 0:\n"
                "            self._unanswered(request)\n"
                "            self._pump(True)\n"
                "            return\n"
                "        now, now_ms = self._loop.time(), wall_ms()\n"
                "        self._metrics.request_seconds.record(now - request.sent_at)\n"
                "        self._own.request_seconds.record(now - request.sent_at)\n"
                "        try:\n            answer",
            ),
            Change(
                "cluster.connection.connection",
                "        else:\n            transport.write(frame)\n",
                "        else:\n"
                "            transport.write(frame)\n"
                '            self.listener.answered(self, token, memoryview(b""), version)\n',
            ),
        ),
        (*LOSES, "producer failed"),
        has_option("acks", 0),
        theme="unanswered",
    ),
    Defect(
        "no_wait_for_the_loss",
        "a leader learnt in the one turn between a reset and its notice rewinds a ledger with batches in flight",
        (
            Change(
                "pipeline.partition.partition_queue",
                "        if self.ledger.is_flying:\n            self._is_return_due = True\n            return\n",
                "",
            ),
        ),
        ("producer failed",),
        has_fault("move_and_reset", "reset", "kill", "refuse"),
        theme="reset_turn",
    ),
    Defect(
        "younger_overtakes_parked",
        "a parked record that fails admits a younger one, which goes before the other parked ones",
        (
            Change(
                "pipeline.sending.dispatcher",
                "self.is_known = False  # what a partitioner",
                "self.is_known = True  # what a partitioner",
            ),
            Change(
                "pipeline.sending.parking",
                "            self.gate.free(record.charge_bytes)\n\n    def _kept",
                "            self.gate.free(record.charge_bytes)\n            self.gate.grant()\n\n    def _kept",
            ),
        ),
        ("reordered",),
        both(fills_the_buffer, has_bad_records),
        theme="behind",
    ),
    Defect(
        "out_of_range_goes_last",
        "what waits for metadata goes before older records that wait for their partition",
        (
            Change(
                "pipeline.sending.dispatcher",
                "                for record in leaving:\n",
                "                for record in sorted(leaving, key=lambda waiting: waiting.waits is WaitsFor.PARTITION):\n",
            ),
        ),
        ("reordered",),
        has_argument("partition"),
        theme="behind",
    ),
    Defect(
        "compressed_with_what_left",
        "a record recalled between the encoding and the first step of the compressing task is counted out of the header only",
        (
            Change(
                "pipeline.broker.compressing",
                "        from anyio.to_thread import run_sync\n",
                "        from anyio.to_thread import run_sync\n\n        ranges = list(entry.ranges)\n",
            ),
        ),
        ("an innocent record is rejected", "lost", "phantom", "the log cannot be read", "duplicate", "wrong offset"),
        has_option("compression_type"),
        theme="pressed",
    ),
    Defect(
        "another_topics_answer_counts",
        "an answer about another topic, sent before the record came, counts as the refresh that its partition waits for",
        (
            Change(
                "pipeline.broker_backend",
                "dispatcher.learn(usable, now, answered)",
                "dispatcher.learn(usable, now)",
            ),
        ),
        ("partition out of range that exists",),
        has_argument("partition"),
        theme="behind",
    ),
    Defect(
        "refusal_of_before_counts",
        "a record that is sent after its topic was refused fails before the cluster is asked again",
        (
            Change(
                "pipeline.broker_backend",
                "self.parking.refuse_topic(dispatcher, answered)",
                "self.parking.refuse_topic(dispatcher, 1 << 62)",
            ),
        ),
        ("stale refusal", "refused topic without a refusal", "unknown topic too early"),
        has_value("api", "Metadata"),
        theme="refused",
    ),
    Defect(
        "refusal_sticks",
        "one refusal of a topic is told by send_many, send_columns and partitions_for without asking again",
        (Change("pipeline.sending.parking", " and self._client.last_answered(topic) >= asked", ""),),
        ("stale refusal",),
        has_value("api", "Metadata"),
        theme="refused",
    ),
    Defect(
        "remade_topic_is_not_recognised",
        "brokers without topic ids: the leaders of a topic that was made again are too old to be believed",
        (Change("pipeline.partition.partition_queue", "wall_ms(), is_new_topic=is_new_topic)", "wall_ms())"),),
        ("timeout in a healthy cluster", "never settled"),
        both(has_fault("delete", "recreate"), has_brokers("2.1")),
        theme="remade",
    ),
    Defect(
        "urgency_stays_with_the_old_leader",
        "a batch that a task waits for lingers when its leader has moved",
        (
            Change(
                "pipeline.partition.partition_queue",
                "        if batch is not None and batch.is_urgent:\n            self._destination.urged(self)",
                "        if batch is not None and batch.is_urgent:\n            pass",
            ),
        ),
        ("slow in calm", "flush lingers in calm", "slow once well"),
        both(lingers, has_faults),
        theme="moved",
    ),
)
