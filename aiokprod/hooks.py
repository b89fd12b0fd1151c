"""Interceptors: what a user may see and change of each record. A hook cannot raise into the pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from aiokprod.errors import AiokprodError
from aiokprod.logs import StateLog
from aiokprod.model import Record, RecordMetadata


class ProducerInterceptor:
    """Override what you want. Called from the event loop: quick, and without waiting."""

    def configure(self, config: object) -> None:
        """The producer starts; `config` is its `ProducerConfig`. An exception fails `start` with ConfigError."""

    def on_send(self, record: Record) -> Record:
        """Before serializers and partitioner; return the record, or another one. Once per record, never on a retry."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """The record has its outcome: metadata, or an error (also for a record that was refused at once)."""

    def close(self) -> None:
        """The producer is closed."""


class InterceptorChain:
    """All interceptors in their order; an exception is logged and the chain goes on with the last good record."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor], log: StateLog) -> None:
        self._interceptors = tuple(interceptors)
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
            except Exception as broken:
                self._log.hook_failed(f"{type(interceptor).__name__}.on_send", broken)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception as broken:
                self._log.hook_failed(f"{type(interceptor).__name__}.on_acknowledgement", broken)

    def close(self) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except Exception as broken:
                self._log.hook_failed(f"{type(interceptor).__name__}.close", broken)
