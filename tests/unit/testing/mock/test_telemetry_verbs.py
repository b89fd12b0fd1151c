"""`ask_for_telemetry` and `telemetry_pushes`: brokers offer telemetry once they ask for it."""

from __future__ import annotations

from aiokprod.testing import MockCluster
from aiokprod.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest

KEYS = {GetTelemetrySubscriptionsRequest.API_KEY, PushTelemetryRequest.API_KEY}


def test_brokers_offer_telemetry_once_they_ask_for_it() -> None:
    with MockCluster(brokers=2) as cluster:
        assert not KEYS & set(cluster.broker(1).advertised)
        cluster.ask_for_telemetry(["a."])
        assert all(set(cluster.broker(node).advertised) >= KEYS for node in cluster.broker_ids)
        assert cluster.telemetry_pushes() == []
