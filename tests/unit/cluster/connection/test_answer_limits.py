"""How long answers may be: enough for what is asked, and not much more."""

from __future__ import annotations

import tracemalloc
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from answers import answer, brokers, topic
from both_loops import Run, both_loops
from client_rig import rig
from connected import connected
from scripted_broker import Peer, eventually, idle

from aiokprod.cluster.connection import answer_limits
from aiokprod.cluster.connection.answer_limits import (
    SMALL_BYTES,
    answer_bytes,
    answer_elements,
    check_counts,
    metadata_bytes,
    metadata_partitions,
)
from aiokprod.cluster.metadata.fetch import BYTES_PER_SLICE
from aiokprod.cluster.metadata.snapshot import (
    BROKERS_PER_SLICE,
    MAX_BROKERS,
    ClusterSnapshot,
    merge_answer,
    merge_in_slices,
    names_a_broker,
)
from aiokprod.errors import ConnectionLostError, ProtocolError
from aiokprod.wire import messages
from aiokprod.wire.broker_frames import encode_response
from aiokprod.wire.exchange import ANY_SIZE
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.create_topics import CreateTopicsRequest
from aiokprod.wire.messages.describe_producers import DescribeProducersRequest
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest
from aiokprod.wire.messages.end_txn import EndTxnRequest
from aiokprod.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from aiokprod.wire.messages.list_transactions import ListTransactionsRequest
from aiokprod.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokprod.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest
from aiokprod.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from aiokprod.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from aiokprod.wire.metadata_slices import decode_metadata_slices

MIB = 1024 * 1024
SMALL = [
    AddOffsetsToTxnRequest,
    ApiVersionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    WriteTxnMarkersRequest,
]


@pytest.mark.parametrize("kind", SMALL)
def test_answers_with_a_handful_of_numbers_are_small(kind: Any) -> None:  # faults: H25
    assert answer_bytes(kind()) == SMALL_BYTES
    assert answer_elements(kind()) == 10_000


def test_answers_about_the_partitions_of_a_transaction_grow_with_them() -> None:  # faults: H25
    added = AddPartitionsToTxnRequest(v3_and_below_topics=[AddPartitionsToTxnTopic("t", list(range(1000)))])
    offsets = TxnOffsetCommitRequest(
        topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(number) for number in range(1000)])]
    )
    for asked in (added, offsets):
        assert answer_bytes(asked) == SMALL_BYTES + 1000 * 512
        assert answer_elements(asked) == 12_000


def test_answers_about_groups_and_transactions_grow_with_what_is_asked_for() -> None:  # faults: H25
    for count in (1, 1000):
        asked = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", list(range(count)))])
        told = OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    "t" * 249, [OffsetFetchResponsePartition(2**31 - 1, metadata="m" * 4096) for _ in range(count)]
                )
            ]
        )
        assert len(told.encode(7)) < answer_bytes(asked) == SMALL_BYTES + count * 16384
        assert 1 + count < answer_elements(asked) == 10_000 + 2 * count
        ids = DescribeTransactionsRequest([f"{number}" for number in range(count)])
        assert (answer_bytes(ids), answer_elements(ids)) == (SMALL_BYTES + count * 2**21, 10_000 + count * 200_000)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g")], topics=None)
    assert answer_bytes(everything) == ANY_SIZE
    for listing in (ListTransactionsRequest(), DescribeProducersRequest()):
        assert (answer_bytes(listing), answer_elements(listing)) == (ANY_SIZE, 1_000_000)


def test_api_versions_of_any_kafka_are_far_below_the_limit() -> None:
    of_the_future = ApiVersionsResponse(api_keys=[ApiVersion(key, 0, 20) for key in range(1_000)])
    assert 5 * len(of_the_future.encode(4)) < SMALL_BYTES


def test_what_is_not_named_is_limited_by_max_frame_bytes_alone() -> None:
    for message in (CreateTopicsRequest(), MetadataRequest(topics=None)):
        assert answer_bytes(message) == ANY_SIZE
        assert answer_elements(message) > 2**31


def about(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


def test_metadata_of_the_largest_topics_fits() -> None:  # faults: T19
    replicas = [1, 2, 3]
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=replicas, isr_nodes=replicas)
        for index in range(40_000)
    ]
    large = MetadataResponse(
        brokers=brokers(*range(1_000)), topics=[MetadataResponseTopic(name="t", partitions=partitions)]
    )
    assert len(large.encode(13)) < answer_bytes(about("t")) == metadata_bytes(1)
    assert len(partitions) < metadata_partitions(1)
    assert answer_elements(about("t", "u")) - answer_elements(about("t")) == 1_500


def test_a_fetch_may_bring_what_it_asks_for_and_one_batch_that_is_larger() -> None:
    def asked(max_bytes: int) -> FetchRequest:
        partitions = [FetchPartition(partition=0)]
        return FetchRequest(max_bytes=max_bytes, topics=[FetchTopic(topic="t", partitions=partitions)])

    assert answer_bytes(asked(1 * MIB)) == 8 * MIB + SMALL_BYTES
    assert answer_bytes(asked(50 * MIB)) == 100 * MIB + SMALL_BYTES
    assert answer_elements(asked(1 * MIB)) == 10_002


def test_offsets_are_limited_by_the_partitions_asked_for() -> None:
    def asked(partitions: int) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(index) for index in range(partitions)])]
        )

    assert answer_bytes(asked(100)) - answer_bytes(asked(0)) == 100 * 1024
    assert answer_elements(asked(100)) - answer_elements(asked(0)) == 200


@pytest.mark.parametrize("version", [4, 7, 12, 13])
def test_a_fetch_of_one_partition_is_answered_with_one_or_a_few(version: int) -> None:  # faults: H25
    asked = FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])])

    def answered(topics: int, partitions: int, records: bytes = b"") -> bytes:
        of_topic = FetchableTopicResponse(partitions=[PartitionData(records=records)] * partitions)
        return FetchResponse(responses=[of_topic] * topics).encode(version)

    check_counts(asked, answered(0, 0), version)
    check_counts(asked, answered(1, 17), version)
    check_counts(asked, memoryview(answered(1, 1, bytes(MIB))), version)
    for topics, partitions in ((1, 18), (1, 9_990), (2, 1)):
        with pytest.raises(ProtocolError, match="are accepted"):
            check_counts(asked, answered(topics, partitions), version)
    check_counts(about("t"), b"", 13)


def test_thousands_of_brokers_are_taken_over_in_slices() -> None:  # faults: H25
    def pauses(count: int) -> int:
        merging = merge_in_slices(ClusterSnapshot(), answer(brokers=brokers(*range(count))), asked=(), keep=())
        return sum(1 for _ in merging)

    assert pauses(BROKERS_PER_SLICE - 1) == 0
    assert pauses(BROKERS_PER_SLICE) == pauses(MAX_BROKERS) == 2


def test_an_answer_is_judged_by_the_first_broker_that_can_be_dialled() -> None:  # faults: H25
    nodes = brokers(*range(3))
    looked_at = iter(nodes)
    assert names_a_broker(looked_at)
    assert list(looked_at) == nodes[1:]
    assert not names_a_broker([])


# ---------------------------------------------------------------------- on a connection

TAGGED = b"\xff\xff\x03"  # 65535 tagged fields
HOSTILE: list[tuple[Any, bytes]] = [
    (InitProducerIdRequest(transactional_id=None), bytes(SMALL_BYTES)),
    (InitProducerIdRequest(transactional_id=None), InitProducerIdResponse().encode(5)[:-1] + TAGGED + b"\1\0" * 30_000),
    (about(), bytes(metadata_bytes(0))),
    (about(), answer(brokers=brokers(*range(MAX_BROKERS + 1))).encode(13)),
    (
        ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition()])]),
        ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse()] * 10_003)]).encode(
            9
        ),
    ),
    (
        FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])], max_bytes=1 * MIB),
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    partitions=[PartitionData(records=b"", aborted_transactions=[AbortedTransaction()] * 10_003)]
                )
            ]
        ).encode(12),
    ),
    (
        FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])], max_bytes=1 * MIB),
        # Eleven topics with a thousand tagged fields each, where the response has one topic and none.
        FetchResponse().encode(12)[:-2] + b"\x0c" + 11 * (b"\x02t\x01\xe8\x07" + 1_000 * b"\x63\x00") + b"\0",
    ),
    (
        FetchRequest(topics=[FetchTopic(topic="t", partitions=[FetchPartition()])], max_bytes=1 * MIB),
        FetchResponse(responses=[FetchableTopicResponse("t", partitions=[PartitionData(records=b"")] * 18)]).encode(12),
    ),
]


@pytest.mark.parametrize(
    ("message", "body"),
    HOSTILE,
    ids=["init", "tags", "metadata", "brokers", "offsets", "fetch", "topics", "partitions"],
)
@both_loops
def test_more_than_a_control_request_can_cause_ends_the_connection(run: Run, message: Any, body: bytes) -> None:
    # faults: H25
    async def liar(peer: Peer) -> None:
        request = await peer.request()
        peer.send(encode_response(request.correlation_id, True, body))
        await idle(peer)

    async def scenario() -> None:
        version = {1: 12, 2: 9, 3: 13, 22: 5}[message.API_KEY]
        async with connected(liar) as connection:
            with pytest.raises((ProtocolError, ConnectionLostError)) as raised:
                await connection.request(message, timeout_s=5.0, version=version)
            assert isinstance(connection.cause, ProtocolError)
            assert "are accepted" in str(raised.value)

    run(scenario())


@both_loops
def test_a_client_whose_cluster_answers_too_much_says_so_and_goes_on_when_it_does_not(run: Run) -> None:  # faults: H25
    async def scenario() -> None:
        async with rig(1) as r:
            broker = r.cluster.brokers[1]
            r.cluster.topic("t", 1)
            broker.answers[MetadataRequest] = lambda broker, request: answer(
                brokers=brokers(*range(MAX_BROKERS + 1)), cluster_id="ours"
            )
            r.client.want("t")
            await eventually(lambda: r.client.last_error("t") is not None)
            with pytest.raises(ConnectionLostError) as raised:
                await r.client.refreshed(0.1)
            assert "an array of 10001 elements; at most 10000 are accepted" in str(raised.value.__cause__)
            del broker.answers[MetadataRequest]
            await r.client.refreshed(5.0)
            assert r.client.topic("t") is not None

    run(scenario())


def test_the_largest_answer_about_one_topic_costs_less_than_32_mb() -> None:  # faults: H25
    """A hostile broker can make us keep only so much: the smallest partitions there are, as many as are taken."""
    count = metadata_partitions(1)
    data = answer(topic("t", dict.fromkeys(range(count), (300, 1)))).encode(13)
    assert len(data) < metadata_bytes(1)
    tracemalloc.start()
    try:
        frame = bytes(data)
        slices = decode_metadata_slices(
            memoryview(frame), 13, BYTES_PER_SLICE, asked={"t"}, max_partitions=metadata_partitions(1)
        )
        found: MetadataResponse | None = None
        while found is None:
            try:
                next(slices)
            except StopIteration as end:
                found = end.value
        snapshot = merge_answer(ClusterSnapshot(), found, asked=["t"], keep=["t"])
        assert len(snapshot.topics["t"].partitions) == count
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()


def test_the_keys_are_those_of_the_messages() -> None:
    for path in Path(messages.__file__).parent.glob("[a-z]*.py"):
        module = import_module(f"{messages.__name__}.{path.stem}")
        for name, kind in vars(module).items():
            if name.endswith("Request") and hasattr(kind, "API_KEY"):
                constant = path.stem.upper()
                assert getattr(answer_limits, constant, kind.API_KEY) == kind.API_KEY, name
    names = {name for name, value in vars(answer_limits).items() if name.isupper() and 0 < value_of(value) < 100}
    modules = {path.stem.upper() for path in Path(messages.__file__).parent.glob("*.py")}
    assert {name for name in names if name not in modules} == {"FETCH_EXCESS"}


def value_of(value: object) -> int:
    return value if isinstance(value, int) else 0
