"""`KafkaClusterError`: a test cluster cannot do what it was asked. The message says what to do about it."""

from __future__ import annotations

from aiokprod.errors import AiokprodError
from aiokprod.wire.codes import name_of


class KafkaClusterError(AiokprodError):
    """An error of a cluster that could not be fetched, started, reached or changed."""


class KafkaAdminError(KafkaClusterError):
    """An admin request that a broker refused; `code` is Kafka's error code."""

    def __init__(self, request: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{request}: {name_of(code)}" + (f": {message}" if message else ""), code=code)
