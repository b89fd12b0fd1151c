"""The subscriptions and refusals of the in-process brokers, by the rules of KIP-714."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiokprod.records.compression import compress
from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.telemetry_receiver import TelemetryReceiver
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest
from aiokprod.wire.reader import ZERO_UUID


def receiver() -> TelemetryReceiver:
    asking = TelemetryReceiver()
    asking.ask_for([""], 1_000, 100, (4, 1), is_delta=True)
    return asking


def pushed(asking: TelemetryReceiver) -> PushTelemetryRequest:
    return PushTelemetryRequest(
        client_instance_id=asking.subscribe(ZERO_UUID), subscription_id=asking.subscription_id, metrics=b"m"
    )


def refused(asking: TelemetryReceiver, request: PushTelemetryRequest) -> int:
    with pytest.raises(RefusalError) as caught:
        asking.push(request)
    return int(caught.value.code)


# broker: 23.1
def test_a_client_is_given_an_id_and_keeps_it() -> None:
    asking = receiver()
    first, second = asking.subscribe(ZERO_UUID), asking.subscribe(ZERO_UUID)
    assert ZERO_UUID != first != second
    assert asking.subscribe(first) == first


def test_a_push_is_kept_as_it_was_before_it_was_packed() -> None:
    asking = receiver()
    request = pushed(asking)
    asking.push(request)
    asking.push(replace(request, compression_type=1, metrics=compress("gzip", None, b"packed")))
    assert [(push.compression, push.metrics) for push in asking.pushes] == [("none", b"m"), ("gzip", b"packed")]


# broker: 23.2
def test_another_subscription_has_another_id() -> None:
    asking = receiver()
    request = pushed(asking)
    asking.ask_for(["a."], 1_000, 100, (), is_delta=True)
    assert refused(asking, request) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID


# broker: 23.3
def test_what_makes_no_sense_is_refused() -> None:
    asking = receiver()
    request = pushed(asking)
    assert refused(asking, replace(request, client_instance_id=ZERO_UUID)) == ErrorCode.INVALID_REQUEST
    assert refused(asking, replace(request, compression_type=2)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused(asking, replace(request, metrics=b"m" * 101)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert refused(asking, replace(request, compression_type=1, metrics=b"no gzip")) == ErrorCode.INVALID_RECORD
    assert asking.pushes == []


def test_after_its_last_push_a_client_is_refused() -> None:
    asking = receiver()
    request = pushed(asking)
    asking.push(replace(request, terminating=True))
    assert refused(asking, request) == ErrorCode.INVALID_REQUEST
