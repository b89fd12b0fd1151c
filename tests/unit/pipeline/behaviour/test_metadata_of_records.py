"""`RecordMetadata` of delivered records: the sizes of key and value, and whether a record was in the log already."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from virtual_rig import log, outcomes, run, started

from aiokprod import ProducerInterceptor, Record, RecordMetadata
from aiokprod.errors import AiokprodError
from aiokprod.testing.virtual import VirtualNetwork

Sizes = tuple[int | None, int | None]
LARGE = 8_192
RECORDS: list[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]] = [
    (b"v", None, ()),
    (None, None, ()),
    (b"", None, ()),
    (b"v" * LARGE, None, ()),
    (b"v" * (LARGE - 1), None, ()),
    (b"value", b"key", ()),
    (None, b"key", ()),
    (b"", b"", ()),
    (b"value", None, [("name", b"1"), ("other", None)]),
    (None, b"k" * 300, [("name", b"1")]),
    (b"v" * LARGE, b"k" * 300, [("name", b"x" * 5_000)]),
]


def size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def sizes_of(results: Sequence[object]) -> list[Sizes]:
    found: list[Sizes] = []
    for result in results:
        assert isinstance(result, RecordMetadata) and not result.duplicate
        found.append((result.serialized_key_size, result.serialized_value_size))
    return found


EXPECTED = [(size_of(key), size_of(value)) for value, key, _ in RECORDS]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 0},
        {"compression_type": "gzip"},
        {"max_in_flight_requests_per_connection": 1, "batch_size": 300},
        {"acks": 0, "enable_idempotence": False},
        {"value_serializer": lambda topic, headers, data: data},
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_keys_and_values_have_their_sizes_whatever_is_in_their_batch(options: dict[str, Any], order: int) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **options) as (_, producer):
            for count in range(1, len(RECORDS) + 1):
                some = RECORDS[:count][::order]
                deliveries = [producer.send("t", value, key, headers=headers) for value, key, headers in some]
                assert sizes_of(await outcomes(deliveries)) == EXPECTED[:count][::order]
                assert sizes_of([delivery.result() for delivery in deliveries]) == EXPECTED[:count][::order]

    run(scenario)


def test_records_that_waited_for_their_topic_or_left_or_went_in_parts_do_not_change_the_sizes_of_others() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=5) as (cluster, producer):
            parked = [producer.send("later", value, key, headers=headers) for value, key, headers in RECORDS]
            cluster.create_topic("later", partitions=1)
            assert sizes_of(await outcomes(parked)) == EXPECTED
            some = [producer.send("t", value, key, headers=headers) for value, key, headers in RECORDS]
            assert some[0].recall() and some[5].recall()
            kept = [some[index] for index in range(len(some)) if index not in (0, 5)]
            assert sizes_of(await outcomes(kept)) == [EXPECTED[i] for i in range(len(some)) if i not in (0, 5)]
            cluster.fail_next("Produce", "MESSAGE_TOO_LARGE")
            parts = [producer.send("t", value, key, headers=headers) for value, key, headers in RECORDS]
            seen: list[Sizes] = []
            for delivery in parts:  # asked while others of the batch are on their way
                delivery.add_done_callback(lambda done: seen.extend(sizes_of([done.result()])))
            assert sizes_of(await outcomes(parts)) == EXPECTED
            await asyncio.sleep(0)
            assert seen == EXPECTED

    run(scenario)


def test_an_interceptor_sees_the_sizes_and_records_of_send_many_with_a_timeout_have_them() -> None:
    class Seen(ProducerInterceptor):
        sizes: ClassVar[list[Sizes]] = []

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            self.sizes.extend(sizes_of([metadata]))

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, interceptors=[Seen()]) as (_, producer):
            records = [Record(value=value, key=key, headers=headers) for value, key, headers in RECORDS]
            await producer.send_many("t", records, timeout=30)
            await asyncio.sleep(1)
            assert Seen.sizes == EXPECTED

    run(scenario)


# ---------------------------------------------------------------------- duplicates
def test_a_batch_whose_answer_was_lost_is_a_duplicate_and_the_next_one_is_none() -> None:
    """broker: 2.1, 2.2"""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.drop_answer("Produce")
            doubled = await producer.send("t", b"0")
            assert (doubled.offset, doubled.duplicate) == (0, True)
            assert not (await producer.send("t", b"1")).duplicate
            cluster.drop_answer("Produce", after_append=False)
            again = producer.send("t", b"2")
            assert not (await again).duplicate and again.attempts == 2
            assert log(cluster) == [b"0", b"1", b"2"]

    run(scenario)


def test_a_batch_that_is_proved_by_a_later_one_is_a_duplicate_without_an_offset() -> None:
    """ledger: R3.2"""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, batch_size=0, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"warm")
            cluster.fail_next("Produce", "REQUEST_TIMED_OUT", after_append=True)
            cluster.fail_next("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER", nth=2)
            proved, later = producer.send("t", b"proved"), producer.send("t", b"later")
            results = await outcomes([proved, later])
            assert [(each.offset, each.duplicate) for each in results if isinstance(each, RecordMetadata)] == [
                (None, True),
                (2, False),
            ]
            assert log(cluster) == [b"warm", b"proved", b"later"]

    run(scenario)


def test_the_code_of_a_duplicate_says_so() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.fail_next("Produce", "DUPLICATE_SEQUENCE_NUMBER", after_append=True)
            metadata = await producer.send("t", b"v")
            assert (metadata.offset, metadata.duplicate) == (None, True)

    run(scenario)


def test_with_log_append_time_a_duplicate_cannot_be_told_and_a_resent_record_is_none() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            cluster.create_topic("timed", partitions=1, message_timestamp_type="LogAppendTime")
            await producer.send("timed", b"0")
            for after_append in (True, False):
                cluster.drop_answer("Produce", after_append=after_append)
                delivery = producer.send("timed", b"v")
                assert not (await delivery).duplicate and delivery.attempts == 2

    run(scenario)
