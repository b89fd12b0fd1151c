"""Decoders that must stand any bytes: every decoder that sees bytes of the network, by name. Used by the tests and the fuzzer.

A decoder here raises ProtocolError or returns; where two decoders read the same bytes, they must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kio_twins import all_messages

from aiokprod.errors import ProtocolError
from aiokprod.records.decoder import decode_batches, split_records
from aiokprod.wire.broker_frames import decode_request_header
from aiokprod.wire.frames import FrameReader, read_response_header
from aiokprod.wire.messages.metadata import MetadataResponse
from aiokprod.wire.messages.produce import ProduceResponse
from aiokprod.wire.metadata_slices import decode_metadata_slices
from aiokprod.wire.produce import decode_produce

Decoder = Callable[[bytes], Any]
FRAME_LIMIT = 1 << 16
RECORDS_LIMIT = 1 << 20


def verdict(decode: Decoder, data: bytes) -> Any:
    """Return what the decoder makes of bytes; a refusal is a verdict too."""
    try:
        return decode(data)
    except ProtocolError:
        return ProtocolError


def message_decoder(message: type[Any], version: int) -> Decoder:
    """Return a decoder of a message, which encodes what it accepted and checks that it reads the same again."""

    def decode(data: bytes) -> Any:
        value = message.decode(data, version)
        again = message.decode(value.encode(version), version)
        assert repr(again) == repr(value), (message, version, data)  # repr: a float may be NaN
        return value

    return decode


def produce_decoder(version: int) -> Decoder:
    def decode(data: bytes) -> Any:
        """Decode, and compare with the generated codec."""
        answer = verdict(lambda each: decode_produce(each, version), data)
        generated = verdict(lambda each: ProduceResponse.decode(each, version), data)
        if generated is ProtocolError:
            assert answer is ProtocolError, data
            raise ProtocolError("refused by both")
        outcomes = [
            (
                topic.name, topic.topic_id, it.index, it.error_code, it.base_offset, it.log_append_time_ms,
                it.log_start_offset, [(each.batch_index, each.batch_index_error_message) for each in it.record_errors],
                it.error_message, it.current_leader.leader_id, it.current_leader.leader_epoch,
            )
            for topic in generated.responses
            for it in topic.partition_responses
        ]  # fmt: skip
        found = [
            (
                it.topic, it.topic_id, it.partition, it.error_code, it.base_offset, it.log_append_time_ms,
                it.log_start_offset, it.record_errors, it.error_message, it.leader_id, it.leader_epoch,
            )
            for it in answer.outcomes
        ]  # fmt: skip
        assert found == outcomes, data
        endpoints = [(each.node_id, each.host, each.port, each.rack) for each in generated.node_endpoints]
        assert (answer.throttle_time_ms, answer.endpoints) == (generated.throttle_time_ms, endpoints), data
        return answer

    return decode


def without_replicas(answer: MetadataResponse) -> MetadataResponse:
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.replica_nodes, partition.isr_nodes, partition.offline_replicas = [], [], []
    return answer


def slices_decoder(version: int) -> Decoder:
    def whole(data: bytes) -> MetadataResponse:
        slices = decode_metadata_slices(data, version, 3)
        while True:
            try:
                next(slices)
            except StopIteration as done:
                return done.value

    def decode(data: bytes) -> Any:
        """Decode, and compare with the generated codec, without the lists of replicas."""
        answer = verdict(whole, data)
        generated = verdict(lambda each: MetadataResponse.decode(each, version), data)
        assert answer == (generated if generated is ProtocolError else without_replicas(generated)), data
        return answer

    return decode


def read_frames(data: bytes) -> list[bytes]:
    reader = FrameReader(FRAME_LIMIT)
    half = len(data) // 2
    frames = reader.feed(data[:half]) + reader.feed(data[half:])
    assert sum(4 + len(frame) for frame in frames) + reader.buffered_bytes <= len(data)
    return frames


def read_records(data: bytes) -> int:
    return sum(len(batch.records()) for batch in decode_batches(data, limit_bytes=RECORDS_LIMIT, check_crc=False))


def read_section(data: bytes) -> Any:
    return split_records(data, len(data) // 7)


MESSAGES = {
    f"{message.__name__} {version}": message_decoder(message, version)
    for message in all_messages()
    for version in range(message.MIN_VERSION, message.MAX_VERSION + 1)
}
OTHERS: dict[str, Decoder] = {
    **{f"decode_produce {version}": produce_decoder(version) for version in range(3, 14)},
    **{f"decode_metadata_slices {version}": slices_decoder(version) for version in range(14)},
    "FrameReader": read_frames,
    "read_response_header": lambda data: read_response_header(data, True),
    "decode_request_header": lambda data: decode_request_header(data, {3: 9, 0: 9}),
    "decode_batches": read_records,
    "split_records": read_section,
}
DECODERS: dict[str, Decoder] = {**MESSAGES, **OTHERS}
