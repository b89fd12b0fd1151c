"""Interceptors: what a user may see and change of each record. A hook cannot raise into the pipeline."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence

from aiokprod.errors import AiokprodError
from aiokprod.logs import StateLog
from aiokprod.model import Record
from aiokprod.record_metadata import RecordMetadata


class ProducerInterceptor:
    """Override what you want. Called from the event loop: plain functions that are quick; only `close` may be async."""

    def configure(self, config: object) -> None:
        """The producer starts; `config` is its `ProducerConfig`. An exception fails `start` with ConfigError."""

    def on_send(self, record: Record) -> Record:
        """Before serializers and partitioner; return the record, or another one. Once per record, never on a retry."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """The record has its outcome: metadata, or an error (also for a record that was refused at once)."""

    def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """`on_acknowledgement` that knows the record: what `on_send` and serializers made of it.

        Who overrides it has every record of the producer held in memory until its outcome.
        """

    def close(self) -> Awaitable[None] | None:
        """The producer is closed. What is returned is awaited, for half a second at most."""


class InterceptorChain:
    """All interceptors in their order; an exception is logged and the chain goes on with the last good record.

    Which record an outcome belongs to is remembered by where the record is (its holder, and its index there), and only
    while an interceptor wants to know it.
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
            except (
                BaseException
            ) as broken:  # a CancelledError, too, or what a test's `fail` raises: the others hear all the same
                self._log.hook_failed(f"{type(interceptor).__name__}.on_send", broken)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except (SystemExit, KeyboardInterrupt):
                raise
            except (
                BaseException
            ) as broken:  # a CancelledError, too, or what a test's `fail` raises: the others hear all the same
                self._log.hook_failed(f"{type(interceptor).__name__}.on_acknowledgement", broken)

    # ------------------------------------------------------------------ where records are
    def accepted(self, record: Record, holder: object, index: int) -> None:
        """The pipeline has taken the record."""
        if self._listeners:
            self._open[holder, index] = record

    def moved(self, parked: object, holder: object, index: int) -> None:
        """A batch has taken a parked record."""
        record = self._open.pop((parked, 0), None)
        if record is not None:
            self._open[holder, index] = record

    def settled(self, holder: object, index: int, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """The record there has its outcome."""
        self.on_acknowledgement(metadata, error)
        record = self._open.pop((holder, index), None)
        if record is not None:
            self._tell_outcome(record, metadata, error)

    def refused(self, record: Record, error: AiokprodError) -> None:
        """`send` raised: the record was not taken."""
        self.on_acknowledgement(None, error)
        self._tell_outcome(record, None, error)

    def _tell_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        for listener in self._listeners:
            try:
                listener.on_outcome(record, metadata, error)
            except (SystemExit, KeyboardInterrupt):
                raise
            except (
                BaseException
            ) as broken:  # a CancelledError, too, or what a test's `fail` raises: the others hear all the same
                self._log.hook_failed(f"{type(listener).__name__}.on_outcome", broken)

    def close(self) -> list[tuple[str, Awaitable[object]]]:
        """Close all; what must be awaited, by name."""
        waiting: list[tuple[str, Awaitable[object]]] = []
        for interceptor in self._interceptors:
            name = f"{type(interceptor).__name__}.close"
            try:
                result = interceptor.close()
            except (SystemExit, KeyboardInterrupt):
                raise
            except (
                BaseException
            ) as broken:  # a CancelledError, too, or what a test's `fail` raises: the others hear all the same
                self._log.hook_failed(name, broken)
            else:
                if inspect.isawaitable(result):
                    waiting.append((name, result))
        return waiting


def _wants_outcomes(interceptor: object) -> bool:
    own = getattr(type(interceptor), "on_outcome", None)  # it need not derive from ProducerInterceptor
    return own is not None and own is not ProducerInterceptor.on_outcome
