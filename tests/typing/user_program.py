"""A user's program, for type checkers alone: it is never run (tests/typing/test_types_of_users.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType
from typing import assert_type

from aiokprod import (
    CloseReport,
    Delivery,
    Explanation,
    GroupMetadata,
    OAuthToken,
    Partitioner,
    PreparedTransaction,
    Producer,
    ProducerConfig,
    ProducerExplanation,
    PurgeReport,
    Record,
    RecordBatch,
    RecordMetadata,
    SendReport,
    Transaction,
    TransactionOutcome,
    blocking,
    end_transaction,
)
from aiokprod.explanation import Event, Place, WaitsFor
from aiokprod.testing import MemoryProducer


async def headers(producer: Producer) -> None:
    named: dict[str, bytes] = {"source": b"lab"}
    perhaps: dict[str, bytes | None] = {"source": None}
    mapping: Mapping[str, bytes] = MappingProxyType(named)
    pairs: list[tuple[str, bytes]] = [("source", b"lab")]
    for given in (named, perhaps, mapping, pairs, tuple(pairs)):
        await producer.send("orders", b"value", headers=given)
        producer.try_send("orders", b"value", headers=given)
        producer.send_threadsafe("orders", b"value", headers=given)
        Record(value=b"value", headers=given)


async def deliveries(producer: Producer, memory: MemoryProducer) -> None:
    delivery: Delivery = producer.send("orders", b"value")
    many: list[Delivery] = [delivery, producer.try_send("orders", b"value"), memory.send("orders", b"value")]
    done, pending = await asyncio.wait([delivery], timeout=1)
    assert_type(done, set[Delivery])
    assert_type(pending, set[Delivery])
    for settled in done:
        assert_type(settled.result(), RecordMetadata)
        assert_type(settled.attempts, int | None)
    await asyncio.wait({asyncio.create_task(delivery.wait())})
    assert_type(await delivery, RecordMetadata)
    assert_type(await asyncio.gather(*many), list[RecordMetadata])
    assert_type(await asyncio.wait_for(delivery, 1), RecordMetadata)
    assert_type(await asyncio.shield(delivery), RecordMetadata)
    for first in asyncio.as_completed(many):
        assert_type(await first, RecordMetadata)

    def told(settled: Delivery) -> None:
        settled.exception()

    delivery.add_done_callback(told)
    delivery.remove_done_callback(told)
    metadata = await delivery
    assert_type((metadata.serialized_key_size, metadata.duplicate), tuple[int | None, bool])
    delivery.recall()
    batch = producer.create_batch("orders", 0, size=1_000)
    assert_type((batch, batch.append(b"v", b"k", headers={"h": b"1"})), tuple[RecordBatch, bool])
    assert_type(await producer.send_batch(batch), list[Delivery])
    await asyncio.gather(*await producer.send_batch(batch))
    report = producer.purge("orders", 0)
    assert_type((report, report.purged, report.in_flight), tuple[PurgeReport, int, int])
    one: Explanation = delivery.explain()
    assert_type((one.place, one.waits_for, one.events), tuple[Place, WaitsFor | None, tuple[Event, ...]])
    whole: ProducerExplanation = producer.explain()
    assert_type(whole.oldest, Explanation | None)


def what_a_future_has_and_a_delivery_has_not(delivery: Delivery, metadata: RecordMetadata) -> None:
    delivery.set_result(metadata)  # type: ignore[misc]
    delivery.set_exception(ValueError())  # type: ignore[misc]


def by_value(topic: str, key: bytes | None, value: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
    return every[len(value or b"") % len(every)] if topic == "orders" else available[0]


class ByTenant:
    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, every: Sequence[int], available: Sequence[int]
    ) -> int:
        return every[0]


def first_partition(key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
    return all_partitions[0]


async def transactions(producer: Producer) -> TransactionOutcome | None:
    transaction: Transaction = producer.transaction()
    async with transaction as begun:
        await producer.send("orders", b"value")
        await begun.send_offsets({("in", 0): 5}, "group")
        await begun.send_offsets({("in", 0): 5}, GroupMetadata("group", generation_id=3, member_id="m"))
    producer.begin_transaction()
    await producer.send_offsets_to_transaction({("in", 0): 5}, "group")
    await producer.commit_transaction(timeout=5)
    outcome: TransactionOutcome = await producer.abort_transaction()
    prepared: PreparedTransaction = await producer.prepare_transaction(timeout=5)
    is_committed: bool = await end_transaction("localhost:9092", prepared, commit=True, security_protocol="PLAINTEXT")
    print(is_committed, prepared.partitions[0].last_offset)
    return transaction.outcome or outcome


async def a_token() -> str:
    return "token"


def a_pair() -> tuple[str, int]:
    return "token", 1_900_000_000_000


async def an_oauth_token() -> OAuthToken:
    return OAuthToken("token", 1.9e12, {"logicalCluster": "lkc-1"})


class OfAiokafka:
    async def token(self) -> str:
        return "token"


def options() -> None:
    Producer(
        "localhost:9092",
        acks="all",
        compression_type="zstd",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        partitioner="murmur2_random",
        metadata_recovery_strategy="none",
        client_dns_lookup="use_all_dns_ips",
        transactional_id="orders-7",
        transaction_timeout_ms=30_000,
    )
    config = ProducerConfig(bootstrap_servers=["localhost:9092"], acks=-1, partitioner=first_partition)
    full: Partitioner = by_value
    for each in (full, ByTenant()):
        Producer("localhost:9092", partitioner=each)
    Producer("localhost:9092", partitioner=first_partition)
    Producer("localhost:9092", partitioner=lambda key, every, available: every[0])
    config.replace(acks=1, compression_type="none")
    Producer(config, acks=0)
    Producer("localhost:9092", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=a_token)
    Producer("localhost:9092", sasl_oauth_token_provider=a_pair)
    Producer("localhost:9092", sasl_oauth_token_provider=an_oauth_token)
    Producer("localhost:9092", sasl_oauth_token_provider=OfAiokafka())
    Producer("localhost:9092", sasl_oauth_token_provider=lambda: "token")
    Producer({"linger.ms": "5", "bootstrap.servers": "localhost:9092"})


def without_asyncio() -> None:
    """Use the blocking producer: calls return outcomes, and nothing is awaited."""
    with blocking.Producer("localhost:9092", linger_ms=5, acks="all") as producer:
        assert_type(producer.send("orders", b"value", key=b"key", headers={"source": b"lab"}), RecordMetadata)
        assert_type(producer.submit("orders", b"value", timeout=5), Future[RecordMetadata])
        assert_type(producer.send_many("orders", (b"%d" % number for number in range(3))), SendReport)
        assert_type(producer.partitions_for("orders"), list[int])
        producer.flush(timeout=5)
        assert_type(producer.purge("orders"), PurgeReport)
        assert_type(producer.close(), CloseReport)
    blocking.Producer("localhost:9092", lingr_ms=5)  # type: ignore[call-arg]


def wrong_options(some_text: str) -> None:
    """Pass wrong options: each line must be a type error, as an unneeded ignore is an error, too."""
    Producer("localhost:9092", acks="al")  # type: ignore[arg-type]
    Producer("localhost:9092", partitioner=len)  # type: ignore[arg-type]
    Producer("localhost:9092", acks=2)  # type: ignore[arg-type]
    Producer("localhost:9092", compression_type="zst")  # type: ignore[arg-type]
    Producer("localhost:9092", compression_type=some_text)  # type: ignore[arg-type]
    Producer("localhost:9092", security_protocol="TLS")  # type: ignore[arg-type]
    Producer("localhost:9092", partitioner="murmur")  # type: ignore[arg-type]
    Producer("localhost:9092", sasl_mechanism="SCRAM")  # type: ignore[arg-type]
    Producer("localhost:9092", sasl_oauth_token_provider="token")  # type: ignore[arg-type]
    Producer("localhost:9092", sasl_oauth_token_provider=lambda: 5)  # type: ignore[arg-type]
    Producer("localhost:9092", lingr_ms=5)  # type: ignore[call-arg]
