"""Operations on many records: send_many of all kinds of sources, send_columns."""

from __future__ import annotations

import asyncio
import math
from array import array
from collections.abc import AsyncIterator, Iterator
from itertools import accumulate
from typing import Any

from aiokprod import BytesColumn, Record
from aiokprod.errors import AiokprodError, BufferFullError, SendColumnsError, SendManyError, TopicAuthorizationError

from .books import Account, Call
from .hooks import DeliberateError, is_deliberate
from .scene import Life, Scene
from .sends import value_of
from .world_values import Step


class Bulks:
    """The calls of send_many and send_columns."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.books = scene.books

    def many(self, step: Step) -> None:
        """Start one send_many in a task; it may be cancelled."""
        life = self.scene.lives[step.args.get("producer", 0) % len(self.scene.lives)]
        facts = {name: step.args[name] for name in ("topic", "count", "source", "timeout") if name in step.args}
        call = self.books.call("send_many", life.key, **facts)
        task = self.scene.spawn(self._many(life, call, step.args), str(call))
        if step.args.get("after") is not None:
            self.scene.later(step.args["after"], task.cancel)

    async def _many(self, life: Life, call: Call, args: dict[str, Any]) -> None:
        taken: list[Account] = []
        source: Any = self._values(life, call, args, taken)
        if args["source"].startswith("async"):
            source = self._slowly(source, args.get("pause"))
        delivered, failures = 0, list[tuple[int, AiokprodError]]()
        try:
            if args["source"] == "list":
                source = list(source)
            report = await life.producer.send_many(args["topic"], source, timeout=args.get("timeout"))
            delivered, failures = report.delivered, report.failures
        except SendManyError as failed:
            delivered, failures = failed.report.delivered, failed.report.failures
            call.error = failed
        except asyncio.CancelledError:
            call.cancelled = True
        except (AiokprodError, DeliberateError) as refused:
            call.error = refused
        except BaseException as struck:
            if not is_deliberate(struck):
                raise
            call.error = struck
        self._ended(call)
        if call.cancelled or (call.error is not None and not isinstance(call.error, SendManyError)):
            self._give_up(call, taken)
            return
        call.result = (delivered, len(failures))
        if delivered + len(failures) != len(taken):
            self.books.wrong("send_many does not add up", f"{call}: {delivered} + {len(failures)} of {len(taken)}")
        errors = dict(failures)
        if sorted(errors) != [number for number, _ in failures]:
            self.books.wrong("send_many does not add up", f"{call}: failures are {[n for n, _ in failures][:20]}")
        for number, account in enumerate(taken):
            account.final = errors.get(number, "delivered")
            account.final_at = None if number in errors else call.ended
        self._judge_failures(life, call, errors)

    def _judge_failures(self, life: Life, call: Call, errors: dict[int, AiokprodError]) -> None:
        for number, error in errors.items():
            waited_s = error.elapsed_s or 0.0
            if isinstance(error, BufferFullError) and waited_s < min(life.block_s, life.delivery_s) - 0.05:
                if life.hooks.interceptor is None and "serializer" not in self.scene.world.hooks:
                    self.books.wrong("send_many is refused room", f"{call}: number {number}: {error!r:.200}")
                    break

    def _give_up(self, call: Call, taken: list[Account]) -> None:
        for account in taken:
            account.gave_up = True

    def _values(self, life: Life, call: Call, args: dict[str, Any], taken: list[Account]) -> Iterator[Any]:
        count, size, timeout = args["count"], args["size"], args.get("timeout")
        for index in range(count):
            if index == args.get("raise_at"):
                raise DeliberateError("the source raises")
            if life.has_failed and call.life == life.key:
                call.facts["taken_after_failure"] = call.facts.get("taken_after_failure", 0) + 1
            account = self.books.account(args["topic"], None, life.key, "many", size)
            account.due_at = account.sent_at + life.delivery_s
            own = args.get("timeouts", [None])[index % len(args.get("timeouts", [None]))]
            limit = timeout if own is None else own
            account.timeout_at = None if limit is None else account.sent_at + limit
            if args["source"] == "list":  # when it is taken is not known
                account.session = ("many", self.books.calls.index(call))
                account.due_at = account.timeout_at = None
            taken.append(account)
            self._judge_taken(life, taken)
            if args["source"] != "list" and (timeout is not None or args.get("timeouts")):
                until = math.inf if limit is None else self.scene.now() + limit
                call.facts["timeout_until"] = max(until, call.facts.get("timeout_until", 0.0))
            value: Any = value_of(account.number, size)
            partitions = args.get("partitions")
            if partitions or own is not None or args.get("bad_every"):
                record = Record(value=value, timeout=own)
                if partitions:
                    account.partition = record.partition = partitions[index % len(partitions)]
                    account.existed = (account.partition or 0) < self.scene.partitions_of(args["topic"])
                if args.get("bad_every") and index % args["bad_every"] == args["bad_every"] - 1:
                    record.value = 12.5
                value = record
            yield value

    def _judge_taken(self, life: Life, taken: list[Account]) -> None:
        """Check, while nothing leaves (narrow worlds say when), that at most one record beyond the room is accepted."""
        until = self.scene.world.end.get("nothing_leaves_until")
        if until is not None and self.scene.now() < until and self.scene.healed_at is None:
            held = sum(account.size for account in taken[:-1])
            if held > life.producer.config.buffer_memory + life.waiting_limit_bytes:
                self.books.wrong("more accepted than there is room", f"send_many took {held} bytes of values")

    async def _slowly(self, values: Iterator[Any], pause: float | None) -> AsyncIterator[Any]:
        while True:
            if pause is not None:
                await asyncio.sleep(pause)
            try:
                value = next(values)  # in the books when send_many takes it
            except StopIteration:
                return
            yield value

    def _ended(self, call: Call) -> None:
        call.ended = self.scene.now()
        self.scene.tell(str(call))
        if isinstance(call.error, TopicAuthorizationError) and not self.scene.was_refused_since(call.began):
            self.books.wrong("stale refusal", f"{call}")

    # ------------------------------------------------------------------ columns
    def columns(self, step: Step) -> None:
        """Start one send_columns in a task; it may be cancelled."""
        args = step.args
        life = self.scene.lives[args.get("producer", 0) % len(self.scene.lives)]
        call = self.books.call("send_columns", life.key, topic=args["topic"], count=args["count"])
        task = self.scene.spawn(self._columns(life, call, args), str(call))
        if args.get("after") is not None:
            self.scene.later(args["after"], task.cancel)

    async def _columns(self, life: Life, call: Call, args: dict[str, Any]) -> None:
        taken = []
        values = []
        partitions = args.get("partitions")
        for index in range(args["count"]):
            place = partitions[index % len(partitions)] if partitions else None
            account = self.books.account(args["topic"], place, life.key, "columns", args["size"])
            account.session = ("columns", self.books.calls.index(call))
            taken.append(account)
            values.append(value_of(account.number, args["size"]))
        column = BytesColumn(array("i", accumulate(map(len, values), initial=0)), b"".join(values))
        given = None if not partitions else array("i", [account.partition or 0 for account in taken])
        try:
            report = await life.producer.send_columns(args["topic"], column, partitions=given, placements=True)
        except SendColumnsError as failed:
            report = failed.report
            call.error = failed
        except asyncio.CancelledError:
            call.cancelled = True
            call.ended = self.scene.now()
            self._give_up(call, taken)
            return
        except AiokprodError as refused:
            call.error = refused
            self._ended(call)
            for account in taken:
                account.refused = refused
            return
        except BaseException as struck:
            if not is_deliberate(struck):
                raise
            call.error = struck
            self._ended(call)
            self._give_up(call, taken)
            return
        self._ended(call)
        call.result = report
        if report.delivered + report.failed + report.untaken != len(taken):
            self.books.wrong("send_columns does not add up", f"{call}: {report}")
        for placement in report.placements:
            for row in placement.rows:
                if taken[row].final is not None:
                    self.books.wrong("send_columns does not add up", f"{call}: row {row} is told twice")
                taken[row].final = "delivered"
                taken[row].partition = placement.partition
                taken[row].final_at = call.ended
        call.facts["failed"] = report.failed
        for account in taken:
            if account.final is None:
                account.is_in_report = True
                account.gave_up = True  # failed or not taken: which of them, the report does not say
