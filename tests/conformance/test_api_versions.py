"""ApiVersions: what is offered, and how a client that is too new learns of it. broker: ApiVersions"""

from __future__ import annotations

import pytest
from conformance_targets import MockTarget, Target

from aiokprod.testing.kafka_cluster.blocking import Answer, Request
from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

# What producers, readers and consumers in groups need, by Kafka version: (lowest, highest) of each API key.
OFFERED: dict[tuple[int, int], dict[int, tuple[int, int]]] = {
    (2, 8): {
        0: (0, 9), 1: (0, 12), 2: (0, 6), 3: (0, 11), 10: (0, 3), 17: (0, 1), 18: (0, 3), 19: (0, 7), 20: (0, 6), 21: (0, 2),
        22: (0, 4), 24: (0, 3), 25: (0, 3), 26: (0, 3), 28: (0, 3), 36: (0, 2), 37: (0, 3), 60: (0, 0),
        11: (0, 7), 12: (0, 4), 13: (0, 4), 14: (0, 5), 15: (0, 5), 16: (0, 4), 42: (0, 2), 47: (0, 0),
    },
    (3, 9): {
        0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 10: (0, 6), 17: (0, 1), 18: (0, 4), 19: (0, 7), 20: (0, 6), 21: (0, 2),
        22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 4), 28: (0, 4), 36: (0, 2), 37: (0, 3), 60: (0, 1),
        11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 5), 16: (0, 5), 42: (0, 2), 47: (0, 0),
    },
    (4, 3): {
        0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 10: (0, 6), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2),
        22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5), 36: (0, 2), 37: (0, 3), 60: (0, 2),
        11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 42: (0, 2), 47: (0, 0),
        68: (0, 1), 69: (0, 1),
    },
}  # fmt: skip

SERVED_FROM = {0: 3, 1: 4, 2: 1, 19: 2, 20: 1}
"""Where the codecs of the mock begin."""


def ask(target: Target, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="aiokprod", client_software_version="1")
    return target.connect().ask(request, ApiVersionsResponse, version)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_what_is_offered(target: Target, version: int) -> None:  # broker: 18.1
    answer = ask(target, version)
    assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    expected = target.by_version(OFFERED)
    if isinstance(target, MockTarget) and target.version < (4, 0):  # what it has no codec for it does not offer
        expected = {key: (max(low, SERVED_FROM.get(key, 0)), high) for key, (low, high) in expected.items()}
    assert {key: offered.get(key) for key in expected} == expected


def test_the_lowest_version_that_is_offered_is_served(target: Target) -> None:  # broker: 18.1
    """Produce of Kafka 4 is the exception, which real brokers make too: the layout is read from version 3 on."""
    offered = {each.api_key: each.min_version for each in ask(target, 3).api_keys}
    topic = target.new_topic()
    fetch = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition_max_bytes=1)])])
    offsets = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])])
    lowest: list[tuple[Request, type[Answer]]] = [
        (fetch, FetchResponse), (offsets, ListOffsetsResponse), (MetadataRequest(topics=[]), MetadataResponse),
    ]  # fmt: skip
    for request, kind in lowest:
        version = max(offered[request.API_KEY], request.MIN_VERSION)
        if isinstance(target, MockTarget):
            assert version == offered[request.API_KEY]
        target.connect().ask(request, kind, version)


# ---------------------------------------------------------------------- authentication that is not asked for
def test_a_listener_without_sasl_refuses_a_handshake_and_goes_on(target: Target) -> None:  # broker: 18.6
    broker = target.connect()
    for version in (0, 1):
        answer = broker.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, version)
        assert (answer.error_code, answer.mechanisms) == (E.ILLEGAL_SASL_STATE, [])
    broker.ask(MetadataRequest(topics=[]), MetadataResponse, 9)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_listener_without_sasl_refuses_a_token_and_goes_on(target: Target, version: int) -> None:  # broker: 18.6
    broker = target.connect()
    answer = broker.ask(SaslAuthenticateRequest(auth_bytes=b"\0u\0p"), SaslAuthenticateResponse, version)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (E.ILLEGAL_SASL_STATE, b"", 0)
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    broker.ask(MetadataRequest(topics=[]), MetadataResponse, 9)


@pytest.mark.parametrize("version", [5, 99])
def test_a_version_that_is_too_new_is_answered_in_version_0(
    target: Target, version: int
) -> None:  # KIP-511  # broker: 18.2
    broker = target.connect()
    broker.send_body(18, version, b"\x01\x01\x00", flexible=True)
    answer = ApiVersionsResponse.decode(broker.answer_body(flexible=False), 0)
    newest = target.by_version({(2, 8): 3, (3, 9): 4})
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert (answer.error_code, offered) == (E.UNSUPPORTED_VERSION, {18: (0, newest)})
    broker.ask(MetadataRequest(topics=[]), MetadataResponse, 9)  # the connection goes on


def test_the_finalized_features(target: Target) -> None:  # broker: 18.3
    answer = ask(target, 3)
    finalized = {each.name: each.max_version_level for each in answer.finalized_features}
    assert finalized.get("transaction.version") == target.by_version({(2, 8): None, (4, 3): 2})


@pytest.mark.parametrize("key", [3, 22])
def test_any_other_api_in_a_version_that_is_too_new_closes_the_connection(
    target: Target, key: int
) -> None:  # broker: 18.4
    broker = target.connect()
    broker.send_body(key, 99, b"", flexible=True)
    assert broker.is_closed()


def test_a_client_name_of_strange_characters_is_refused(target: Target) -> None:  # KIP-511  # broker: 18.5
    request = ApiVersionsRequest(client_software_name="a b", client_software_version="1")
    answer = target.connect().ask(request, ApiVersionsResponse, 3)
    assert answer.error_code == E.INVALID_REQUEST
