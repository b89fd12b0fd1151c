"""`Outcome`: the Future of one record that a thread hands over. In a forked child one of the parent says so and never hangs.

A `concurrent.futures.Future` makes a condition for itself, the most of its cost. This one makes it when it is first needed: by
a thread that waits, cancels or adds a callback before the outcome is known. An Outcome that is only asked when it is done, as
most of a window are, never has one.

Invariant: the condition is made, and the outcome of an Outcome without one is set, while `Making.lock` is held. So a thread
either finds the outcome, or the loop finds the condition of the thread.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

from aiokprod.errors import ForkedError
from aiokprod.record_metadata import RecordMetadata

OPEN = ("PENDING", "RUNNING")  # states of a Future without an outcome


class Forks:
    """The number of forks between the first process and this one."""

    count = 0

    @classmethod
    def happened(cls) -> None:
        """Count one; called in the child."""
        cls.count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Forks.happened)


class Making:
    """The lock under which conditions are made; a child makes its own, as another thread may have held that of its parent."""

    lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: setattr(Making, "lock", threading.RLock()))


class Outcome(Future[RecordMetadata]):
    """The outcome of one record: its metadata, or its error."""

    def __init__(self) -> None:  # without that of the base class, which makes a condition
        self._state = "PENDING"
        self._result: RecordMetadata | None = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._forks = Forks.count

    if not TYPE_CHECKING:  # else any name would be one of its attributes

        def __getattr__(self, name: str) -> Any:
            """Create the condition at its first use."""
            if name != "_condition":
                raise AttributeError(name)
            with Making.lock:
                condition = self.__dict__.get(name)
                if condition is None:
                    condition = self.__dict__[name] = threading.Condition()
            return condition

    # ------------------------------------------------------------------ the loop
    def is_taken(self) -> bool:
        """Note that the loop takes the record; False if it was cancelled."""
        with Making.lock:
            if "_condition" not in self.__dict__:
                self._state = "RUNNING"
                return True
        return self.set_running_or_notify_cancel()

    def deliver(self, metadata: RecordMetadata) -> None:
        """Set the outcome of a delivered record."""
        with Making.lock:
            if "_condition" not in self.__dict__:
                self._result = metadata
                self._state = "FINISHED"
                return
        self.set_result(metadata)

    # ------------------------------------------------------------------ threads
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the metadata, or raise the error of the record.

        Args:
            timeout: seconds to wait; None waits until there is an outcome.

        Raises:
            AiokprodError: the error of the record.
            TimeoutError: there is no outcome yet; the record is still sent.
            CancelledError: it was cancelled before the loop took the record.
            ForkedError: another process has sent the record, and this one cannot know what became of it.
        """
        if self._state == "FINISHED" and self._exception is None:
            return cast(RecordMetadata, self._result)
        if self._forks != Forks.count:
            self._check_process()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the record, None if it was delivered; raises as `result` does otherwise."""
        if self._forks != Forks.count:
            self._check_process()
        return super().exception(timeout)

    def _check_process(self) -> None:
        self._condition = threading.Condition()  # a thread that was not copied may hold the former one
        if self._state in OPEN:
            raise ForkedError("the record was sent by the process that this one was forked from, which has its outcome")
