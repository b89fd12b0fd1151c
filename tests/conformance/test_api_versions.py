"""ApiVersions: what is offered, and how a client that is too new learns of it. broker: ApiVersions"""

from __future__ import annotations

import pytest
from conformance_targets import Target

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse

# What a producer and a simple reader need, by Kafka version: (lowest, highest) of each API key.
OFFERED: dict[tuple[int, int], dict[int, tuple[int, int]]] = {
    (2, 8): {
        0: (0, 9), 1: (0, 12), 2: (0, 6), 3: (0, 11), 10: (0, 3), 18: (0, 3), 19: (0, 7), 20: (0, 6), 21: (0, 2),
        22: (0, 4), 24: (0, 3), 25: (0, 3), 26: (0, 3), 28: (0, 3), 37: (0, 3), 60: (0, 0),
    },
    (3, 9): {
        0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 10: (0, 6), 18: (0, 4), 19: (0, 7), 20: (0, 6), 21: (0, 2),
        22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 4), 28: (0, 4), 37: (0, 3), 60: (0, 1),
    },
    (4, 3): {
        0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 10: (0, 6), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2),
        22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5), 37: (0, 3), 60: (0, 2),
    },
}  # fmt: skip


def ask(target: Target, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="aiokprod", client_software_version="1")
    return target.connect().ask(request, ApiVersionsResponse, version)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_what_is_offered(target: Target, version: int) -> None:  # broker: 18.1
    answer = ask(target, version)
    assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    expected = target.by_version(OFFERED)
    assert {key: offered.get(key) for key in expected} == expected


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
