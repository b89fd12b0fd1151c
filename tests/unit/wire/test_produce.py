"""The hand-written Produce envelope against the generated codec, in every version."""

from __future__ import annotations

from random import Random

import pytest
from kio_twins import MODES, kio_twin, twins

from aiokprod.errors import ProtocolError
from aiokprod.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from aiokprod.wire.produce import (
    EXCESS,
    ProduceAnswer,
    ProduceOutcome,
    ProduceTopic,
    decode_produce,
    encode_produce,
    produce_answer_bytes,
)
from aiokprod.wire.reader import ZERO_UUID
from aiokprod.wire.writer import Writer

VERSIONS = range(3, 14)
FLEXIBLE_VERSIONS = range(9, 14)


def as_generated(answer: ProduceAnswer, version: int) -> ProduceResponse:
    """Return the answer as the generated class; topics are told apart where name or id change."""
    response = ProduceResponse(throttle_time_ms=answer.throttle_time_ms)
    response.node_endpoints = [NodeEndpoint(*endpoint) for endpoint in answer.endpoints]
    for outcome in answer.outcomes:
        partition = PartitionProduceResponse(
            outcome.partition, outcome.error_code, outcome.base_offset, outcome.log_append_time_ms,
            outcome.log_start_offset, [BatchIndexAndErrorMessage(*pair) for pair in outcome.record_errors],
            outcome.error_message, LeaderIdAndEpoch(outcome.leader_id, outcome.leader_epoch),
        )  # fmt: skip
        last = response.responses[-1] if response.responses else None
        if last is None or (last.name, last.topic_id) != (outcome.topic, outcome.topic_id):
            response.responses.append(TopicProduceResponse(outcome.topic, outcome.topic_id))
        response.responses[-1].partition_responses.append(partition)
    return response


def merged(response: ProduceResponse) -> ProduceResponse:
    """Return the response with neighbours of one topic joined and empty topics dropped, as a list of outcomes shows them."""
    topics: list[TopicProduceResponse] = []
    for topic in response.responses:
        if not topic.partition_responses:
            continue
        if topics and (topics[-1].name, topics[-1].topic_id) == (topic.name, topic.topic_id):
            topics[-1].partition_responses += topic.partition_responses
        else:
            topics.append(topic)
    response.responses = topics
    return response


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "", "payments-é"])
def test_requests_are_byte_equal_to_the_generated_ones(version: int, transactional_id: str | None) -> None:
    random = Random(version)
    for topic_count in (0, 1, 2, 130):
        topics, generated = [], []
        for number in range(topic_count):
            name = f"topic-{number}" if version < 13 else ""
            topic_id = random.randbytes(16) if version >= 13 else ZERO_UUID
            batches = {partition: random.randbytes(random.choice((0, 61, 300))) for partition in range(number % 4)}
            pieces = [(at, (batch[:61], bytearray(batch[61:])), len(batch)) for at, batch in batches.items()]
            topics.append(ProduceTopic(name, topic_id, pieces))
            generated.append(
                TopicProduceData(name, topic_id, [PartitionProduceData(at, batch) for at, batch in batches.items()])
            )
        acks = random.choice((-1, 0, 1))
        parts = encode_produce(version, acks, 30_000, topics, transactional_id)
        expected = ProduceRequest(transactional_id, acks, 30_000, generated).encode(version)
        assert b"".join(parts) == expected
        assert ProduceRequest.decode(b"".join(parts), version).topic_data == generated


def test_batches_are_not_copied_into_the_request() -> None:
    header, section = b"h" * 61, b"s" * 1000
    parts = encode_produce(9, -1, 1, [ProduceTopic("t", ZERO_UUID, [(0, (header, section), 1061)])])
    assert any(part is header for part in parts)
    assert any(part is section for part in parts)


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_read_as_the_generated_codec_reads_them(version: int) -> None:
    kio = kio_twin(ProduceResponse, version)
    for seed in range(40):
        mode = MODES[seed % len(MODES)]
        response, _ = twins(ProduceResponse, kio, mode, Random(f"{version} {seed}"))
        data = response.encode(version)
        assert as_generated(decode_produce(data, version), version) == merged(response)
        assert as_generated(decode_produce(memoryview(data), version), version) == response


def with_tags(response: ProduceResponse, version: int, tags: list[tuple[int, bytes]]) -> bytes:
    """Return the answer with other tagged fields at its end."""
    data = response.encode(version)
    assert data[-1] == 0
    writer = Writer()
    writer.unsigned_varint(len(tags))
    for tag, content in tags:
        writer.unsigned_varint(tag)
        writer.unsigned_varint(len(content))
        writer.out += content
    return data[:-1] + bytes(writer.out)


@pytest.mark.parametrize("version", FLEXIBLE_VERSIONS)
def test_tags_of_the_future_are_skipped(version: int) -> None:
    data = with_tags(ProduceResponse(throttle_time_ms=7), version, [(1, b"new"), (300, b""), (2**31, b"x" * 200)])
    assert decode_produce(data, version).throttle_time_ms == 7


@pytest.mark.parametrize("version", [10, 13])
def test_a_tag_sent_twice_counts_once(version: int) -> None:
    """As in the generated codec: the last one stands, so a broken broker cannot pile endpoints up."""
    endpoints = ProduceResponse(node_endpoints=[NodeEndpoint(1, "a", 9092, None), NodeEndpoint(2, "b", 9092, "r")])
    content = endpoints.encode(version)[len(ProduceResponse().encode(version)) - 1 :]
    assert content[:2] == bytes([1, 0])
    data = with_tags(ProduceResponse(), version, [(0, content[3:]), (0, content[3:])])
    assert decode_produce(data, version).endpoints == [(1, "a", 9092, None), (2, "b", 9092, "r")]
    assert as_generated(decode_produce(data, version), version) == ProduceResponse.decode(data, version)


def test_version_9_does_not_know_the_endpoints() -> None:
    data = with_tags(ProduceResponse(), 9, [(0, b"whatever")])
    assert decode_produce(data, 9).endpoints == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_or_longer_answer_is_refused(version: int) -> None:
    response, _ = twins(ProduceResponse, kio_twin(ProduceResponse, version), "most", Random(version))
    data = response.encode(version)
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            decode_produce(data[:size], version)
    with pytest.raises(ProtocolError, match="1 bytes after the end"):
        decode_produce(data + b"\0", version)


def answer_of(partitions: int, records: int = 0, *, topics: int = 1) -> bytes:
    named = [BatchIndexAndErrorMessage(index, "no") for index in range(records)]
    outcomes = [PartitionProduceResponse(index=index, record_errors=named) for index in range(partitions)]
    return ProduceResponse(
        responses=[TopicProduceResponse(name=str(number), partition_responses=outcomes) for number in range(topics)]
    ).encode(12)


def test_a_few_partitions_too_many_are_passed_over_and_many_are_refused() -> None:  # faults: H11, H25
    for data in (answer_of(2 * 10 + EXCESS), answer_of(1, topics=2 * 10 + EXCESS)):
        assert len(decode_produce(data, 12, 10, 10).outcomes) == 2 * 10 + EXCESS
    for data in (answer_of(2 * 10 + EXCESS + 1), answer_of(1, topics=2 * 10 + EXCESS + 1), answer_of(20, topics=2)):
        with pytest.raises(ProtocolError, match="elements; at most"):
            decode_produce(data, 12, 10, 10)


def test_a_few_records_too_many_are_passed_over_and_many_are_refused() -> None:  # faults: H13, H25
    assert len(decode_produce(answer_of(1, 2 * 4 + EXCESS), 12, 1, 4).outcomes[0].record_errors) == 2 * 4 + EXCESS
    for data in (answer_of(1, 2 * 4 + EXCESS + 1), answer_of(2, 13)):
        with pytest.raises(ProtocolError, match="elements; at most"):
            decode_produce(data, 12, 2, 4)


def test_tagged_fields_of_all_structs_count_against_the_records_that_may_be_named() -> None:  # faults: H25
    """120 of them behind each named record fit into its 256 bytes: 350,000 in an answer about 2,900 records."""

    def answer_with(tags: int) -> bytes:
        outcome = bytes(30) + b"\x02" + b"\0\0\0\1\0" + bytes([tags]) + tags * b"\x63\0" + b"\0\0"
        data = b"\x02\x02t\x02" + outcome + b"\0" + bytes(4) + bytes([tags]) + tags * b"\x63\0"
        assert len(ProduceResponse.decode(data, 12).responses[0].partition_responses[0].record_errors) == 1
        return data

    assert decode_produce(answer_with(9), 12, 1, 2).outcomes[0].record_errors == [(1, None)]
    with pytest.raises(ProtocolError, match="10 tagged fields; at most 9 are accepted"):
        decode_produce(answer_with(10), 12, 1, 2)
    outcome = PartitionProduceResponse(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2))
    moved = ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=[outcome] * 200)],
        node_endpoints=[NodeEndpoint(1, "a", 9092, None)],
    )
    assert len(decode_produce(moved.encode(12), 12, 200, 200).outcomes) == 200


def test_the_length_of_an_answer_follows_from_its_request() -> None:  # faults: H25
    assert produce_answer_bytes(1, 1) < 70_000
    longest = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="t" * 249,
                partition_responses=[
                    PartitionProduceResponse(
                        index=index,
                        error_message="m" * 500,
                        record_errors=[BatchIndexAndErrorMessage(each, "x" * 200) for each in range(50)],
                    )
                    for index in range(100)
                ],
            )
        ]
    )
    assert len(longest.encode(12)) < produce_answer_bytes(100, 5_000)


def test_an_outcome_shows_itself() -> None:
    assert repr(ProduceOutcome("orders", ZERO_UUID, 3, 6, -1)) == "<ProduceOutcome orders-3 code 6 offset -1>"


def test_as_many_endpoints_are_taken_as_partitions_could_be_led_by() -> None:  # faults: H25
    def body(count: int) -> bytes:
        return ProduceResponse(node_endpoints=[NodeEndpoint(at, "a", 9092, None) for at in range(count)]).encode(12)

    assert len(decode_produce(body(36), 12, 10, 10).endpoints) == 36
    assert len(decode_produce(body(1_000), 12).endpoints) == 1_000
    with pytest.raises(ProtocolError, match="37 elements; at most 36 are accepted"):
        decode_produce(body(37), 12, 10, 10)
