"""`Outcome`: the Future of one record that a thread hands over. In a forked child one of the parent says so and never hangs."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future

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


class Outcome(Future[RecordMetadata]):
    """The outcome of one record: its metadata, or its error."""

    def __init__(self) -> None:
        super().__init__()
        self._forks = Forks.count

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
