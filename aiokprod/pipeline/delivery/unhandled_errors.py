"""`UnhandledErrors`: errors of records that no caller awaits. One per producer.

Fire and forget never fails in silence: each such failure goes to `on_delivery_error`, and the log tells, rate-limited and
with counts. The option is called from the loop, outside the pipeline's steps, so it may call `send`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

from aiokprod.errors import AiokprodError
from aiokprod.interceptor_chain import raise_soon
from aiokprod.logs import QUIET_S, StateLog
from aiokprod.model import Record


class UnhandledErrors:
    """The reporter to `on_delivery_error` and to the log."""

    def __init__(self, on_delivery_error: Callable[[AiokprodError], object] | None, log: StateLog) -> None:
        self._on_delivery_error = on_delivery_error
        self._log = log
        self._timer: asyncio.TimerHandle | None = None  # until counts that the log holds back are told

    def report(
        self,
        error: AiokprodError,
        count: int,
        kept: Iterable[Record] | None = None,
        errors: Iterator[AiokprodError] | None = None,
    ) -> None:
        """Report that `count` records failed with this error, and that no caller awaits them.

        `kept`: the records themselves. `errors`: the error of each; None: all failed with the same.
        """
        loop = asyncio.get_running_loop()
        self._log.records_lost(error, count)
        if self._log.holds_losses and self._timer is None:
            self._timer = loop.call_later(QUIET_S, self.tell_held)
        if self._on_delivery_error is not None:
            loop.call_soon(self._tell, error, count, kept, errors)

    def report_at_once(
        self,
        error: AiokprodError,
        count: int,
        kept: Iterable[Record] | None = None,
        errors: Iterator[AiokprodError] | None = None,
    ) -> None:
        """Report as `report` does, but call the hook now: before a close, when it may send, or after the end of the loop."""
        self._log.records_lost(error, count)
        if self._on_delivery_error is None:
            return
        records: Iterable[Record | None] = repeat(None, count) if kept is None else kept
        for record in records:
            try:
                self._tell_one(error, record, errors)
            except BaseException as broken:
                if isinstance(broken, SystemExit | KeyboardInterrupt) and asyncio._get_running_loop() is not None:
                    raise_soon(broken)  # as where the loop calls the hook
                else:
                    self._log.hook_failed("on_delivery_error", broken)

    def gather(self) -> None:
        """Make the log hold all losses until `tell_held`: what ends at once is told in one line for each error and topic."""
        self._log.is_gathering = True

    def tell_held(self) -> None:
        """Make the log write all that it holds back: after a while, at a crash, and at the end of a producer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._log.tell_held()

    def _tell(
        self,
        error: AiokprodError,
        count: int,
        kept: Iterable[Record] | None,
        errors: Iterator[AiokprodError] | None,
    ) -> None:
        records: Iterable[Record | None] = repeat(None, count) if kept is None else kept
        self._tell_each(error, iter(records), errors)

    def _tell_each(
        self, error: AiokprodError, records: Iterator[Record | None], errors: Iterator[AiokprodError] | None
    ) -> None:
        for record in records:
            try:
                self._tell_one(error, record, errors)
            except (SystemExit, KeyboardInterrupt):
                # The loop may go on, as a notebook's does: the failures behind it are told on the next turn.
                asyncio.get_running_loop().call_soon(self._tell_each, error, records, errors)
                raise
            except BaseException as broken:  # a CancelledError, too: the failures behind it are told all the same
                self._log.hook_failed("on_delivery_error", broken)

    def _tell_one(self, error: AiokprodError, record: Record | None, errors: Iterator[AiokprodError] | None) -> None:
        assert self._on_delivery_error is not None
        told = error.clone() if errors is None else next(errors)
        told.record = record
        told.reported = True
        self._on_delivery_error(told)
