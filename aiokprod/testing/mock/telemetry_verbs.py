"""The verbs of a test about client telemetry (KIP-714). A base class of `MockCluster`; callable from any thread."""

from __future__ import annotations

from collections.abc import Sequence

from aiokprod.testing.mock.broker import MockBroker
from aiokprod.testing.mock.telemetry_receiver import PushedTelemetry, TelemetryReceiver
from aiokprod.testing.own_thread import LoopHome
from aiokprod.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest


class TelemetryVerbs:
    """The telemetry that brokers ask their clients for, and the pushes."""

    _home: LoopHome
    _telemetry: TelemetryReceiver
    _brokers: dict[int, MockBroker]

    def ask_for_telemetry(
        self,
        metrics: Sequence[str] = ("",),
        *,
        push_interval_ms: int = 1_000,
        max_bytes: int = 1_048_576,
        delta: bool = True,
        compression_types: Sequence[int] = (4, 3, 1, 2),
    ) -> None:
        """Ask clients for metrics from now on; until this is called, brokers do not offer telemetry.

        Clients that are connected do not notice that brokers offer it; those that push get UNKNOWN_SUBSCRIPTION_ID.

        Args:
            metrics: beginnings of names; "" is all metrics, and no beginnings none.
            push_interval_ms: milliseconds between two pushes.
            max_bytes: the most bytes of one push, compressed.
            delta: True for differences to the last push, False for sums since the start.
            compression_types: numbers of the codecs that are taken beside none, in the order of preference.
        """

        def ask() -> None:
            self._telemetry.ask_for(metrics, push_interval_ms, max_bytes, compression_types, is_delta=delta)
            for broker in self._brokers.values():
                for request in (GetTelemetrySubscriptionsRequest, PushTelemetryRequest):
                    broker.advertised[request.API_KEY] = (request.MIN_VERSION, request.MAX_VERSION)

        self._home.call(ask)

    def telemetry_pushes(self) -> list[PushedTelemetry]:
        """Return the pushes that were accepted, oldest first; at most 10,000.

        Returns:
            The pushes of all clients.
        """
        return self._home.call(lambda: list(self._telemetry.pushes))
