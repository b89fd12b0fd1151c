"""`TelemetryReceiver`: what the brokers of a cluster ask their clients for, and what was pushed (KIP-714). One per cluster."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiokprod.errors import ProtocolError
from aiokprod.records.compression import CODEC_NAMES, decompress
from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest
from aiokprod.wire.reader import ZERO_UUID

MOST_PLAIN_BYTES: Final = 16 * 1_048_576
MOST_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class PushedTelemetry:
    """One push of a client, as the broker accepted it."""

    client_instance_id: bytes
    subscription_id: int
    is_last: bool
    """the client said that it terminates"""
    compression: str
    """name of the codec"""
    metrics: bytes
    """OTLP `MetricsData`, decompressed"""


class TelemetryReceiver:
    """The subscription of all clients, which has no metrics at first, and the pushes."""

    def __init__(self) -> None:
        self.metrics: tuple[str, ...] = ()
        self.push_interval_ms = 300_000
        self.max_bytes = 1_048_576
        self.is_delta = True
        self.compression_types: tuple[int, ...] = (4, 3, 1, 2)  # in Kafka's order
        self.pushes: list[PushedTelemetry] = []
        self._instances: set[bytes] = set()
        self._last: set[bytes] = set()  # those that have said that they terminate

    def ask_for(
        self,
        metrics: Sequence[str],
        push_interval_ms: int,
        max_bytes: int,
        compression_types: Sequence[int],
        *,
        is_delta: bool,
    ) -> None:
        """Ask for something else from now on: another subscription id."""
        self.metrics = tuple(metrics)
        self.push_interval_ms, self.max_bytes, self.is_delta = push_interval_ms, max_bytes, is_delta
        self.compression_types = tuple(compression_types)

    @property
    def subscription_id(self) -> int:
        """A checksum of what is asked for. broker: 23.2"""
        asked = repr((self.metrics, self.push_interval_ms))
        return zlib.crc32(asked.encode()) & 0x7FFFFFFF

    def subscribe(self, instance_id: bytes) -> bytes:
        """Return the id of the client: its own, or a new one. broker: 23.1"""
        if instance_id == ZERO_UUID:
            instance_id = (len(self._instances) + 1).to_bytes(16, "big")
        self._instances.add(instance_id)
        return instance_id

    def push(self, request: PushTelemetryRequest) -> None:
        """Take in a push.

        Raises:
            RefusalError: it is not what was asked for. broker: 23.3
        """
        instance_id = request.client_instance_id
        if instance_id == ZERO_UUID or instance_id in self._last:
            raise RefusalError(ErrorCode.INVALID_REQUEST)
        if request.subscription_id != self.subscription_id:
            raise RefusalError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if request.compression_type and request.compression_type not in self.compression_types:
            raise RefusalError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self.max_bytes:
            raise RefusalError(ErrorCode.TELEMETRY_TOO_LARGE)
        codec = CODEC_NAMES[request.compression_type]
        try:
            plain = bytes(decompress(codec, bytes(request.metrics), MOST_PLAIN_BYTES))
        except ProtocolError as error:
            raise RefusalError(ErrorCode.INVALID_RECORD) from error
        if request.terminating:
            self._last.add(instance_id)
        if len(self.pushes) < MOST_KEPT:
            push = PushedTelemetry(instance_id, request.subscription_id, request.terminating, codec, plain)
            self.pushes.append(push)
