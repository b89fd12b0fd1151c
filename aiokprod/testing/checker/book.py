"""`SendBook`: the records sent and their reported outcomes, kept while a producer runs. One per test."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING

from aiokprod.errors import AiokprodError
from aiokprod.model import Persistence
from aiokprod.testing.checker.delivery import Promise, check_delivery
from aiokprod.testing.checker.history import Finding, LogRecord, Outcome, Sent

if TYPE_CHECKING:
    from aiokprod.pipeline.delivery.delivery import Delivery


class SendBook:
    """The sends of a run in the order of the calls, each with its outcome as soon as there is one.

        book = SendBook()
        for number in range(100):
            book.watch(producer.send("orders", b"%d" % number), b"%d" % number, "orders", within_s=130)
        await producer.close()
        assert book.check(log_of(cluster.records("orders"))) == []

    `clock` gives seconds (`loop.time` in virtual time).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.sends: list[Sent] = []
        self._clock = clock

    def watch(
        self,
        delivery: Delivery,
        identity: Hashable,
        topic: str,
        *,
        partition: int | None = None,
        within_s: float | None = None,
        session: Hashable = 0,
    ) -> Sent:
        """Keep the send that gave this delivery. Call it right after `send`, before the next one.

        Args:
            identity: the value by which the record is found in the log.
            partition: where it was sent; otherwise where it is acknowledged counts.
            within_s: seconds from now within which it must be settled; None: no bound.
            session: the producer, if there are several.
        """
        now = self._clock()
        due_at = None if within_s is None else now + within_s
        sent = Sent(identity, topic, partition, session, sent_at=now, due_at=due_at)
        self.sends.append(sent)
        delivery.add_done_callback(lambda done: self._settle(sent, done))
        return sent

    def refused(self, identity: Hashable, topic: str, error: BaseException, *, session: Hashable = 0) -> Sent:
        """Keep a call that raised before there was a delivery."""
        now = self._clock()
        sent = Sent(identity, topic, None, session, sent_at=now)
        self.sends.append(sent)
        self._fail(sent, error)
        return sent

    def check(
        self,
        log: Iterable[LogRecord],
        *,
        promise: Promise = Promise.EXACTLY_ONCE,
        others_write: bool = False,
        undelivered_keep_order: bool = False,
        lenience_s: float = 1.0,
    ) -> list[Finding]:
        """Return the findings of `check_delivery`; by default an outcome may come a second late, for the loop's turn."""
        return check_delivery(
            self.sends,
            log,
            promise=promise,
            others_write=others_write,
            undelivered_keep_order=undelivered_keep_order,
            lenience_s=lenience_s,
        )

    def _settle(self, sent: Sent, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._fail(sent, error)
            return
        metadata = delivery.result()
        sent.settled += 1
        sent.settled_at = self._clock()
        sent.outcome = Outcome.DELIVERED
        sent.offset = metadata.offset
        if sent.partition is None:
            sent.partition = metadata.partition

    def _fail(self, sent: Sent, error: BaseException) -> None:
        sent.settled += 1
        sent.settled_at = self._clock()
        sent.error = f"{type(error).__name__}: {error}"
        # An error that is not ours says nothing of the log.
        certainly = isinstance(error, AiokprodError) and error.persistence is Persistence.NOT_PERSISTED
        sent.outcome = Outcome.NOT_PERSISTED if certainly else Outcome.POSSIBLY_PERSISTED
