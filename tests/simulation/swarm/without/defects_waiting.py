"""Defects of waiting (room, serializers, linger), of telling outcomes, and of keeping."""

from __future__ import annotations

from .needs import both, fills_the_buffer, has, has_argument, has_hook, has_option, has_value, lingers
from .patching import Change, Defect

DEFECTS = (
    # ------------------------------------------------------------------ serializers
    Defect(
        "serializing_line_loses_its_records",
        "when the task of a serializing line is cancelled its records are in no place any more",
        (
            Change(
                "pipeline.sending.parking",
                "                del self._lines[topic]\n",
                "                del self._lines[topic]\n"
                "            for parked in line.waiting:\n"
                "                self.dispatcher(topic).waiting.pop(parked, None)\n",
            ),
        ),
        ("never settled", "unsettled after close", "flush hangs", "send_many hangs"),
        both(has_hook("serializer"), has("sabotage")),
        theme="sabotaged",
    ),
    Defect(
        "serializers_have_no_deadline",
        "a record whose serializer hangs waits for ever, and with it those behind",
        (
            Change(
                "pipeline.sending.parking",
                "        parked.draft = record\n",
                "        parked.draft = record\n        parked.block_deadline += 1e9\n",
            ),
        ),
        ("settled late", "never settled", "flush hangs", "flush is late"),
        has_hook("serializer", "hang_every"),
        theme="served",
    ),
    Defect(
        "serializing_is_not_charged",
        "records that wait for their serializers take no room",
        (
            Change(
                "pipeline.sending.parking",
                "min(estimated_bytes + self.overhead_bytes, gate.limit_bytes)",
                "0",
            ),
        ),
        ("more accepted than there is room",),
        both(has_hook("serializer"), fills_the_buffer),
        theme="served",
    ),
    Defect(
        "many_is_taken_by_serializers",
        "send_many takes its whole source while its records wait at their serializers for want of room",
        (
            Change(
                "pipeline.sending.admission",
                "not self.waiting_count and not self.waiting_bytes and self.used_bytes",
                "not self.waiting_count and self.used_bytes",
            ),
        ),
        ("more accepted than there is room", "send_many is refused room"),
        both(has_hook("serializer"), has("many")),
        theme="served",
    ),
    Defect(
        "coroutines_of_serializers_are_left",
        "a record that leaves while its serializer waits its turn leaves a coroutine that nothing awaits",
        (
            Change(
                "pipeline.sending.serializing",
                "                result.close()\n",
                "                pass\n",
            ),
        ),
        ("a warning",),
        has_hook("serializer"),
        theme="served",
    ),
    # ------------------------------------------------------------------ arguments
    Defect(
        "wrong_timeout_beside_a_serializer",
        "an awaitable serializer, and a timeout that is a text: noticed after the record was counted",
        (
            Change(
                "pipeline.sending.parking",
                "        timeout_s = checks.checked_options(record)\n",
                "        timeout_s = record.timeout if isinstance(record.timeout, str) else checks.checked_options(record)\n",
            ),
        ),
        ("bare TypeError", "flush hangs"),
        both(has_hook("serializer"), has("misuse")),
        theme="wrong_bounds",
    ),
    Defect(
        "timeout_that_is_no_number",
        "an awaitable serializer, and a timeout that is NaN: no timer calls any more",
        (
            Change(
                "pipeline.sending.parking",
                "        timeout_s = checks.checked_options(record)\n",
                "        timeout_s = record.timeout if record.timeout != record.timeout else checks.checked_options(record)\n",
            ),
        ),
        (
            "timeout that was not asked for",
            "per-send timeout is late",
            "settled late",
            "flush hangs",
            "never settled",
            "spin",
        ),
        both(has_hook("serializer"), has("misuse")),
        theme="wrong_bounds",
    ),
    Defect(
        "huge_timeout",
        "a timeout that no float holds is noticed after the record was taken",
        (
            Change(
                "pipeline.sending.record_checks",
                "                seconds = math.inf\n",
                "                return timeout\n",
            ),
        ),
        ("bare OverflowError", "flush hangs", "never settled"),
        has("misuse"),
        theme="wrong_bounds",
    ),
    # ------------------------------------------------------------------ room and linger
    Defect(
        "flush_lingers",
        "a flush does not cut the linger of a batch that is opened later, for a record that had waited",
        (
            Change(
                "pipeline.partition.partition_queue",
                "if generation < self._flushes.generation or self._room.is_short",
                "if self._room.is_short",
            ),
            Change(
                "pipeline.partition.partition_queue", "            or batch.generation < self._flushes.generation\n", ""
            ),
        ),
        ("flush lingers in calm",),
        lingers,
        theme="full",
    ),
    Defect(
        "full_buffer_lingers",
        "a batch that is opened while records wait for room lingers all the same",
        (
            Change(
                "pipeline.partition.partition_queue",
                "self._flushes.generation or self._room.is_short:",
                "self._flushes.generation:",
            ),
        ),
        ("slow in calm", "waits for room in calm", "fails in calm", "flush lingers in calm"),
        both(lingers, fills_the_buffer),
        theme="full",
    ),
    Defect(
        "flush_waits_for_what_comes_later",
        "an open batch takes records that are sent after the flush that waits for it",
        (
            Change(
                "pipeline.broker_backend",
                "            queue.seal()  # what",
                "            self.brokers.ready(queue)  # what",
            ),
        ),
        ("flush is late", "flush hangs"),
        lingers,
        theme="flushed",
    ),
    Defect(
        "try_send_waits",
        "try_send waits for room unless the buffer is full to the last byte",
        (
            Change(
                "pipeline.sending.parking",
                "patience == NEVER_WAITS or (patience == WAITS_IF_IT_MAY and not gate.may_wait(charge_bytes))\n"
                "        ):\n            self._refused",
                "(patience == NEVER_WAITS and gate.used_bytes >= gate.limit_bytes) or (\n"
                "            patience == WAITS_IF_IT_MAY and not gate.may_wait(charge_bytes))\n"
                "        ):\n            self._refused",
            ),
        ),
        ("try_send waits",),
        both(has_value("via", "try_send"), fills_the_buffer),
        theme="full",
    ),
    Defect(
        "many_is_refused_room",
        "send_many refuses records where max_waiting_bytes is less than one of them",
        (
            Change(
                "pipeline.sending.parking",
                "(patience == WAITS_IF_IT_MAY and not gate.may_wait(charge_bytes))\n        ):\n            self._refused",
                "not gate.may_wait(charge_bytes)\n        ):\n            self._refused",
            ),
        ),
        ("send_many is refused room",),
        both(has("many"), has_option("max_waiting_bytes")),
        theme="full",
    ),
    Defect(
        "record_that_never_fits",
        "a record as large as the buffer waits for room that there can never be",
        (
            Change(
                "pipeline.sending.record_checks",
                "config.buffer_memory - RECORD_OVERHEAD_BYTES\n",
                "config.buffer_memory\n",
            ),
        ),
        ("never fits",),
        theme="full",
    ),
    # ------------------------------------------------------------------ telling outcomes
    Defect(
        "send_timeout_in_silence",
        "the per-send timeout of a record that nothing waits for is told to nothing",
        (Change("pipeline.partition.partition_queue", "index, error, is_told=False)", "index, error, is_told=True)"),),
        ("fails in silence",),
        has_argument("timeout"),
        theme="told",
    ),
    Defect(
        "asked_and_reported",
        "a failure that the caller has asked for in time is reported, too",
        (
            Change(
                "pipeline.delivery.unasked",
                "        asked.add(index)\n        self._left -= 1\n",
                "        asked.add(index)\n",
            ),
        ),
        ("reported too often",),
        theme="told",
    ),
    Defect(
        "kept_and_forgotten",
        "failures that are kept for callers when the producer ends are reported nowhere",
        (
            Change(
                "pipeline.delivery.unasked_failures",
                "            self._report(self._line.popleft()[1], at_once=at_once)\n",
                "            self._line.clear()\n",
            ),
        ),
        ("fails in silence",),
        theme="told",
    ),
    Defect(
        "asked_too_late_is_not_said",
        "a failure that was reported before it is asked for does not say so",
        (Change("pipeline.delivery.delivery", "            error.reported = True\n", "            pass\n"),),
        ("fails in silence",),
        theme="told",
    ),
    Defect(
        "cancelled_many_is_silent",
        "what a send_many had taken when it was cancelled, or its source raised, fails in silence",
        (Change("producer", "            bulk.release()\n            bulk.tell_taken(ended)\n", ""),),
        ("fails in silence",),
        has("many"),
        theme="told",
    ),
    Defect(
        "refused_many_is_silent",
        "what a send_many had taken when the producer was closed fails in silence",
        (
            Change(
                "producer",
                "        except BaseException as ended:\n            bulk.release()\n",
                "        except asyncio.CancelledError as ended:\n            bulk.release()\n",
            ),
        ),
        ("fails in silence",),
        has("many"),
        theme="told",
    ),
    Defect(
        "cancelled_many_forgets_timeouts",
        "the per-send timeouts that a cancelled send_many had heard of are told to nothing",
        (
            Change(
                "pipeline.partition.send_many",
                "        for _, delivery in self.timed:\n            holder, index",
                "        for _, delivery in list[tuple[int, Delivery]]():\n            holder, index",
            ),
        ),
        ("fails in silence",),
        has("many"),
        theme="told",
    ),
    Defect(
        "many_waits_beyond_its_timeout",
        "send_many(timeout=) waits for records that are stamped for as long as they take",
        (
            Change(
                "pipeline.partition.send_many",
                "            if has_timeout:\n                self.timed.append((self.count, delivery))\n",
                "",
            ),
        ),
        ("send_many's timeout is late",),
        has("many"),
        theme="told",
    ),
    Defect(
        "timeouts_of_many_are_reported",
        "on_delivery_error is told of per-send timeouts that a send_many waits for",
        (Change("pipeline.sending.parking", "is_watched(delivery) or holder.is_heard(index)", "is_watched(delivery)"),),
        ("reported too often",),
        has("many"),
        theme="told",
    ),
    Defect(
        "timed_out_and_reported_again",
        "a stamped record whose per-send timeout was reported is reported again when it fails",
        (
            Change(
                "pipeline.sending.parking",
                "            holder.note_told(index)\n",
                "            if is_heard:\n                holder.note_told(index)\n",
            ),
        ),
        ("reported too often",),
        has_argument("timeout"),
        theme="told",
    ),
    Defect(
        "timed_out_and_told_twice",
        "a stamped record whose per-send timeout a task was told of is reported, too, when it fails",
        (
            Change(
                "pipeline.sending.parking",
                "            holder.note_told(index)\n",
                "            if not is_heard:\n                holder.note_told(index)\n",
            ),
        ),
        ("reported too often",),
        has_argument("timeout"),
        theme="told",
    ),
    Defect(
        "parked_record_of_many_is_told_twice",
        "a record that fails while send_many takes it is in the report, and reported to on_delivery_error",
        (
            Change(
                "pipeline.sending.parking",
                "            delivery.add_done_callback(heard)\n        record.value",
                "            pass\n        record.value",
            ),
        ),
        ("reported too often",),
        has("many"),
        theme="told",
    ),
    Defect(
        "many_drains_its_source",
        "send_many reads its whole source though the producer has failed",
        (
            Change(
                "pipeline.sending.send_path",
                "            if not parking.is_open or isinstance(",
                '            if type(refused).__name__ == "ProducerClosedError" or isinstance(',
            ),
        ),
        ("send_many drains its source",),
        has("many"),
        theme="sabotaged",
    ),
    # ------------------------------------------------------------------ what is kept
    Defect(
        "polls_are_all_kept",
        "each poll of a pending Delivery is noted by its batch",
        (
            Change(
                "pipeline.delivery.delivery",
                "if not self._is_watched and (watch is None or not watch.is_registered):",
                "if not self._is_watched:",
            ),
        ),
        ("watched grows",),
        has_value("watch", "poll"),
        theme="kept",
    ),
    Defect(
        "timeouts_keep_what_has_settled",
        "settled deliveries stay until their per-send timeouts are over",
        (Change("pipeline.sending.send_timeouts", "        for _ in range(count):\n", "        for _ in range(0):\n"),),
        ("settled deliveries are kept",),
        has_argument("timeout_step"),
        theme="kept",
    ),
    Defect(
        "unknown_topics_are_kept",
        "names of topics that do not exist are kept for ever",
        (
            Change(
                "pipeline.sending.parking", "if not dispatcher.is_needed and self.topics", "if False and self.topics"
            ),
        ),
        ("topics are kept",),
        has("tenants"),
        theme="kept",
    ),
)
