"""Interceptors: hooks that see, and may change, each record. A hook cannot raise into the pipeline."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence

from aiokprod.errors import AiokprodError
from aiokprod.logs import StateLog
from aiokprod.model import Record
from aiokprod.record_metadata import RecordMetadata


class ProducerInterceptor:
    """The base class of interceptors: override the hooks you need.

    Hooks are called from the event loop: they must be plain functions and quick. Only `close` may be async.
    """

    def configure(self, config: object) -> None:
        """Prepare for a start of the producer. An exception makes `start` fail with ConfigError.

        Args:
            config: the `ProducerConfig` of the producer.
        """

    def on_send(self, record: Record) -> Record:
        """Return the record to send: `record`, or another one.

        Called before serializers and partitioner, once per record, never on a retry. An exception is logged, and the
        record is sent as it was.

        Args:
            record: the record as the program sent it, or as the interceptor before this one returned it.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """Handle the outcome of a record: metadata, or an error (also of a record that `send` refused).

        Args:
            metadata: the place of the record in the log; None if it failed.
            error: the reason for the failure; None if the record was delivered.
        """

    def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """Handle the outcome of a record, given the record as `on_send` and the serializers made it.

        Overriding this keeps every in-flight record in memory until its outcome.

        Args:
            record: the record as it was sent.
            metadata: the place of the record in the log; None if it failed.
            error: the reason for the failure; None if the record was delivered.
        """

    def close(self) -> Awaitable[None] | None:
        """Release what the interceptor holds; the producer is closed.

        Returns:
            None, or an awaitable, which is awaited for half a second at most.
        """


class InterceptorChain:
    """All interceptors in their order. An exception is logged, and the chain continues with the last good record.

    The record of an outcome is found by its position (its holder, and its index there). Positions are kept only if an
    interceptor overrides `on_outcome`.
    """

    def __init__(self, interceptors: Sequence[ProducerInterceptor], log: StateLog) -> None:
        self._interceptors = tuple(interceptors)
        self._listeners = [interceptor for interceptor in interceptors if _wants_outcomes(interceptor)]
        self._open: dict[tuple[object, int], Record] = {}
        self._log = log

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: Record) -> Record:
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, Record):
                    raise TypeError(f"on_send must return a Record, not {type(changed).__name__}")
                record = changed
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as broken:  # also CancelledError: the other interceptors are still called
                self._log.hook_failed(f"{type(interceptor).__name__}.on_send", broken)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as broken:  # also CancelledError: the other interceptors are still called
                self._log.hook_failed(f"{type(interceptor).__name__}.on_acknowledgement", broken)

    # ------------------------------------------------------------------ where records are
    def accepted(self, record: Record, holder: object, index: int) -> None:
        """Note the position of a record that the pipeline has taken."""
        if self._listeners:
            self._open[holder, index] = record

    def moved(self, parked: object, holder: object, index: int) -> None:
        """Note the new position of a parked record that a batch has taken."""
        record = self._open.pop((parked, 0), None)
        if record is not None:
            self._open[holder, index] = record

    def settled(self, holder: object, index: int, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """Report the outcome of the record at this position."""
        self.on_acknowledgement(metadata, error)
        record = self._open.pop((holder, index), None)
        if record is not None:
            self._tell_outcome(record, metadata, error)

    def refused(self, record: Record, error: AiokprodError) -> None:
        """Report a record that `send` refused with an error."""
        self.on_acknowledgement(None, error)
        self._tell_outcome(record, None, error)

    def _tell_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        for listener in self._listeners:
            try:
                listener.on_outcome(record, metadata, error)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as broken:  # also CancelledError: the other interceptors are still called
                self._log.hook_failed(f"{type(listener).__name__}.on_outcome", broken)

    def close(self) -> list[tuple[str, Awaitable[object]]]:
        """Close all interceptors; return what must be awaited, by name."""
        waiting: list[tuple[str, Awaitable[object]]] = []
        for interceptor in self._interceptors:
            name = f"{type(interceptor).__name__}.close"
            try:
                result = interceptor.close()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as broken:  # also CancelledError: the other interceptors are still called
                self._log.hook_failed(name, broken)
            else:
                if inspect.isawaitable(result):
                    waiting.append((name, result))
        return waiting


def _wants_outcomes(interceptor: object) -> bool:
    own = getattr(type(interceptor), "on_outcome", None)  # it need not derive from ProducerInterceptor
    return own is not None and own is not ProducerInterceptor.on_outcome
