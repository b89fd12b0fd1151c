"""GetTelemetrySubscriptions and PushTelemetry (KIP-714): the metrics that a broker with a receiver asks its clients for."""

from __future__ import annotations

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def get_telemetry_subscriptions(
    call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return what is asked for, and the id of the client."""
    receiver = call.broker.telemetry
    try:
        call.refuse_by_script()
        instance_id = receiver.subscribe(request.client_instance_id)
    except RefusalError as refusal:
        return GetTelemetrySubscriptionsResponse(error_code=int(refusal.code))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=receiver.subscription_id,
        accepted_compression_types=list(receiver.compression_types),
        push_interval_ms=receiver.push_interval_ms,
        telemetry_max_bytes=receiver.max_bytes,
        delta_temporality=receiver.is_delta,
        requested_metrics=list(receiver.metrics),
    )


def push_telemetry(call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take in the metrics of a client."""
    try:
        call.refuse_by_script()
        call.broker.telemetry.push(request)
    except RefusalError as refusal:
        return PushTelemetryResponse(error_code=int(refusal.code))
    return PushTelemetryResponse()
