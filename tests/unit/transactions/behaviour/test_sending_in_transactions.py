"""Every way of sending in a transaction, and the life of a producer around it."""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from txn_rig import CLUSTERS, ID, Scenario, committed, producer_of, run, written

from aiokprod import BytesColumn, Persistence, Producer, ProducerInterceptor, Record, TransactionOutcome
from aiokprod.errors import (
    AiokprodError,
    BufferFullError,
    ClusterAuthorizationError,
    ConfigError,
    ProducerClosedError,
    ProducerFailedError,
    RecordTooLargeError,
    RequestTimeoutError,
    SendColumnsError,
    SendManyError,
    SendTimeoutError,
    SerializationError,
    TransactionAbortedError,
    UsageError,
)
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

EVERY = pytest.mark.parametrize("version", list(CLUSTERS))


def column(values: Sequence[bytes]) -> BytesColumn:
    return BytesColumn(array("i", accumulate(map(len, values), initial=0)), b"".join(values))


def on(version: str, scenario: Scenario, **options: Any) -> None:
    run(scenario, CLUSTERS[version], **options)


# ---------------------------------------------------------------------- ways of sending
@EVERY
def test_many_records_and_columns_are_part_of_it(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            report = await producer.send_many("t", [b"%d" % number for number in range(500)])
            assert report.delivered == 500
            columns = await producer.send_columns("t", column([b"c%d" % number for number in range(500)]))
            assert columns.delivered == 500
            assert producer.try_send("t", b"one")
            assert await committed(cluster) == []
        assert len(await committed(cluster)) == 1001
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send_many("t", [b"x"] * 100)
                await producer.send_columns("t", column([b"x"] * 100))
                raise KeyError
        assert len(await committed(cluster)) == 1001

    on(version, scenario)


@EVERY
def test_a_partition_of_the_transaction_before_gets_several_batches_before_the_first_answer(version: str) -> None:
    """ledger R5: the leader knows the producer, so no first sequence but 0 is taken under its next epoch (broker: 1.4)"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        values = [b"%d" % number + bytes(150) for number in range(5)]

        async def written_before_the_first_answer() -> int:
            async with producer.transaction():
                held = cluster.hold("Produce", times=1)
                before = producer.metrics()["requests_sent"]
                for value in values:
                    producer.send("t", value, partition=0)
                while not held.hits:
                    await asyncio.sleep(0.01)
                count = producer.metrics()["requests_sent"] - before
                cluster.release(held)
                return int(count)

        assert await written_before_the_first_answer() == 1, "the leader may not know the producer"
        assert await written_before_the_first_answer() == 5
        await asyncio.sleep(1.5)
        assert await written_before_the_first_answer() == 1, "it may have forgotten it"
        assert await committed(cluster) == values * 3 == written(cluster)

    on(version, scenario, batch_size=200, linger_ms=0)


def test_many_records_and_columns_are_refused_outside_and_while_it_ends() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for send in (lambda: producer.send_many("t", [b"v"]), lambda: producer.send_columns("t", column([b"v"]))):
            with pytest.raises(UsageError, match="no transaction is open"):
                await send()

        async def endless() -> Any:
            while True:
                yield b"v"
                await asyncio.sleep(0.01)

        producer.begin_transaction()
        many = asyncio.create_task(producer.send_many("t", endless()))
        await asyncio.sleep(1)
        await producer.commit_transaction()
        with pytest.raises(UsageError, match=r"no transaction is open|being committed"):
            await many
        assert 90 < len(await committed(cluster)) < 110
        assert await producer.partitions_for("t") == [0, 1, 2], "questions are answered outside, too"

    on("TV2", scenario)


@EVERY
def test_many_records_stay_in_the_transaction_in_which_the_call_began(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        goes_on = asyncio.Event()

        async def values() -> AsyncIterator[bytes]:
            yield b"first"
            await goes_on.wait()
            yield b"second"

        async with producer.transaction():
            call = asyncio.create_task(producer.send_many("t", values()))
            await asyncio.sleep(1)
        async with producer.transaction():
            goes_on.set()
            with pytest.raises(UsageError, match="is over") as caught:
                await call
            producer.send("t", b"another", partition=0)
        assert caught.value.__notes__[-1] == "1 records of this send_many were taken before, and go on"
        assert sorted(map(str, await committed(cluster))) == ["b'another'", "b'first'"]

    on(version, scenario)


@pytest.mark.parametrize("call", ["send_many", "send_columns"])
def test_a_call_that_waits_for_its_topic_begins_in_no_later_transaction(call: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        rows: Any = [b"v"] if call == "send_many" else column([b"v"])
        producer.begin_transaction()
        waiting = asyncio.create_task(getattr(producer, call)("late", rows))
        await asyncio.sleep(1)
        await producer.abort_transaction()
        async with producer.transaction():
            cluster.create_topic("late", partitions=1)
            with pytest.raises(UsageError, match="is over"):
                await waiting
        assert cluster.records("late") == []

    run(scenario, CLUSTERS["TV2"])


@EVERY
def test_failures_of_many_and_of_columns_abort(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.alter_topic("t", **{"max.message.bytes": 2000})
        for failed in (SendManyError, SendColumnsError):
            with pytest.raises(failed):
                async with producer.transaction() as transaction:
                    if failed is SendManyError:
                        await producer.send_many("t", [b"good", bytes(5000)])
                    else:
                        await producer.send_columns("t", column([b"good", bytes(5000)]))
            assert transaction.outcome is TransactionOutcome.ABORTED
        assert await committed(cluster) == []

    on(version, scenario)


@EVERY
def test_the_timeout_of_one_send_aborts(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.delay_next("Produce", 3.0, before_serving=True)
        with pytest.raises(TransactionAbortedError) as caught:
            async with producer.transaction():
                late = producer.send("t", b"late", timeout=1.0)
                await asyncio.sleep(5)  # by now it is written, and its caller was told that it failed
        assert isinstance(caught.value.__cause__, SendTimeoutError)
        error = late.exception()
        assert error is not None
        assert error.persistence is Persistence.NOT_PERSISTED, "as each error of a record in a transaction"
        assert await committed(cluster) == []

    on(version, scenario)


def test_a_record_without_room_is_not_taken_and_aborts_nothing() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            with pytest.raises(BufferFullError):
                for _ in range(1000):
                    producer.send("t", bytes(1000))
        assert len(await committed(cluster)) > 10

    size = {"buffer_memory": 20_000, "max_request_size": 20_000, "batch_size": 10_000, "max_waiting_bytes": 0}
    on("TV2", scenario, **size)


class Seen(ProducerInterceptor):
    def __init__(self) -> None:
        self.outcomes: list[object] = []

    def on_send(self, record: Record) -> Record:
        record.headers = [("seen", b"1")]
        return record

    def on_acknowledgement(self, metadata: object, error: object) -> None:
        self.outcomes.append(error)


@EVERY
def test_interceptors_and_awaited_serializers_work_inside(version: str) -> None:
    seen = Seen()

    async def serialize(value: str) -> bytes:
        await asyncio.sleep(0.5)
        if value == "bad":
            raise ValueError(value)
        return value.encode()

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            for number in range(3):
                producer.send("t", f"{number}", partition=0)  # the commit waits for the serializer, too
        assert await committed(cluster) == [b"0", b"1", b"2"]
        with pytest.raises(TransactionAbortedError) as caught:
            async with producer.transaction():
                producer.send("t", "bad", partition=0)
        assert isinstance(caught.value.__cause__, SerializationError)
        with pytest.raises(KeyError):
            async with producer.transaction():
                waiting = producer.send("t", "waiting", partition=0)
                raise KeyError
        assert isinstance(waiting.exception(), TransactionAbortedError)
        await asyncio.sleep(1)
        assert await committed(cluster) == [b"0", b"1", b"2"]

    on(version, scenario, value_serializer=serialize, interceptors=[seen])
    assert [type(outcome).__name__ for outcome in seen.outcomes] == [
        "NoneType", "NoneType", "NoneType", "SerializationError", "TransactionAbortedError"
    ]  # fmt: skip


@EVERY
def test_interceptors_are_told_the_end_behind_the_outcomes_of_its_records(version: str) -> None:
    told: list[str] = []

    class Follows(ProducerInterceptor):
        def on_acknowledgement(self, metadata: object, error: object) -> None:
            told.append("delivered" if error is None else type(error).__name__)

        def on_transaction_end(self, outcome: TransactionOutcome) -> None:
            told.append(outcome.name)

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            producer.send("t", b"v", partition=0)
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send("t", b"v", partition=0)
                producer.send("t", b"v", partition=1)
                raise KeyError
        async with producer.transaction():
            pass
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        await producer.close()

    on(version, scenario, interceptors=[Follows()], linger_ms=50)
    assert told == [
        "delivered", "COMMITTED", "delivered", "TransactionAbortedError", "ABORTED", "COMMITTED",
        "TransactionAbortedError", "ABORTED",
    ]  # fmt: skip


@EVERY
def test_records_that_wait_for_their_topic_belong_to_the_commit(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(3, lambda: cluster.create_topic("late"))
        async with producer.transaction() as transaction:
            producer.send("late", b"v")
        assert transaction.outcome is TransactionOutcome.COMMITTED
        await asyncio.sleep(0.1)
        assert [record.value for record in cluster.records("late", committed=True)] == [b"v"]

    on(version, scenario)


@EVERY
def test_compressed_batches_are_transactional(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            for number in range(200):
                producer.send("t", b"%d" % number + bytes(100), partition=0)
        assert len(await committed(cluster)) == 200

    on(version, scenario, compression_type="gzip", linger_ms=20)


@EVERY
def test_failures_of_an_aborted_transaction_are_told_by_its_end_alone(version: str) -> None:
    told: list[object] = []

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.alter_topic("t", **{"max.message.bytes": 2000})
        with pytest.raises(KeyError):
            async with producer.transaction():
                producer.send("t", b"v")
                raise KeyError
        with pytest.raises(TransactionAbortedError):
            async with producer.transaction():
                producer.send("t", bytes(5000))
                producer.send("t", b"good", partition=2)

    on(version, scenario, on_delivery_error=told.append)
    assert [type(error) for error in told] == [RecordTooLargeError]


# ---------------------------------------------------------------------- life
@EVERY
def test_a_close_aborts_what_is_open(version: str) -> None:
    """faults: X21"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"delivered", partition=0)
        queued = producer.send("t", b"queued", partition=1)
        report = await producer.close()
        assert report.transaction is TransactionOutcome.ABORTED
        assert isinstance(queued.exception(), TransactionAbortedError)
        assert report.undelivered == {("t", 1, Persistence.NOT_PERSISTED): 1}
        assert "Abort" in cluster.transaction(ID).state.value
        assert await committed(cluster) == []
        with pytest.raises(ProducerClosedError):
            producer.begin_transaction()

    on(version, scenario, linger_ms=100)


@EVERY
def test_a_close_lets_a_commit_go_on(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.001)
        report = await producer.close()
        await commit
        assert report.transaction is TransactionOutcome.COMMITTED
        assert await committed(cluster) == [b"v"]

    on(version, scenario)


@EVERY
def test_a_close_with_a_dead_coordinator_keeps_its_bound(version: str) -> None:
    """faults: X21"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        for node in cluster.broker_ids:
            cluster.freeze_broker(node)
        began = loop.time()
        report = await producer.close(3)
        assert loop.time() - began < 4.5
        assert report.transaction is TransactionOutcome.ABORTED, "nothing can commit it any more"
        for node in cluster.broker_ids:
            cluster.thaw_broker(node)
        assert await committed(cluster) == []

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("bound", [0, 0.002])
def test_a_close_without_time_says_that_nothing_is_committed(version: str, bound: float) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        report = await producer.close(bound)
        assert report.transaction is TransactionOutcome.ABORTED
        await producer.start()  # ends it, if that close had no time to
        assert await committed(cluster) == []

    on(version, scenario)


@EVERY
def test_a_close_beside_a_commit_without_an_answer_does_not_know_its_end(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.blackhole_next("EndTxn")
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(1)
        report = await producer.close(0)
        assert report.transaction is TransactionOutcome.UNKNOWN
        with pytest.raises(AiokprodError):
            await commit

    on(version, scenario)


@EVERY
def test_a_producer_can_be_started_again(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for number in range(3):
            async with producer.transaction():
                producer.send("t", b"%d" % number, partition=0)
            report = await producer.close()
            assert report.transaction is None
            await producer.start()
        assert await committed(cluster) == [b"0", b"1", b"2"]

    on(version, scenario)


def in_background(scenario: Any, version: str, **options: Any) -> None:
    """Run with a producer that is started before its cluster answers."""

    async def whole(network: VirtualNetwork, random: Random) -> None:
        cluster_options = {"seed": 1, "now_ms": wall_ms, "auto_create_topics": False} | CLUSTERS[version]
        async with MockCluster(3, network=network, **cluster_options) as cluster:
            cluster.create_topic("t", partitions=3)
            for node in cluster.broker_ids:
                cluster.refuse_connections(node)
            producer = producer_of(cluster, network, **options)
            await producer.start(wait=False)
            async with asyncio.timeout(600):
                await scenario(cluster, producer)
            await producer.close()
            assert cluster.counters.crashes == []

    run_virtual(whole, seed=1)


def allow(cluster: MockCluster) -> None:
    for node in cluster.broker_ids:
        cluster.allow_connections(node)


@EVERY
def test_records_that_come_before_the_id_is_taken_wait(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        asyncio.get_running_loop().call_later(5, allow, cluster)
        async with producer.transaction() as transaction:
            deliveries = [producer.send("t", b"v", partition=partition) for partition in range(3)]
            with pytest.raises(UsageError, match=r"not taken yet|open already"):
                producer.begin_transaction()
            await asyncio.sleep(1)
            assert not any(delivery.done() for delivery in deliveries)
        assert transaction.outcome is TransactionOutcome.COMMITTED
        async with producer.transaction():
            producer.send("t", b"w", partition=0)
        assert len(await committed(cluster)) == 4

    in_background(scenario, version)


@EVERY
@pytest.mark.parametrize("end", ["abort", "close"])
def test_a_transaction_that_was_begun_early_can_be_aborted(version: str, end: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        delivery = producer.send("t", b"v", partition=0)
        if end == "abort":
            assert await producer.abort_transaction() is TransactionOutcome.ABORTED
            with pytest.raises(UsageError):
                producer.send("t", b"v", partition=0)
        else:
            report = await producer.close(5)
            assert report.transaction is TransactionOutcome.ABORTED
        assert isinstance(delivery.exception(), TransactionAbortedError)
        allow(cluster)
        await asyncio.sleep(5)
        if end == "abort":
            async with producer.transaction():
                producer.send("t", b"w", partition=0)
            assert written(cluster) == [b"w"]

    in_background(scenario, version)


def test_an_id_that_is_refused_in_the_background_fails_the_producer() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next("InitProducerId", 53)
        producer.begin_transaction()
        delivery = producer.send("t", b"v")
        assert producer.health().transaction == "initialising"
        allow(cluster)
        with pytest.raises(ClusterAuthorizationError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            await producer.commit_transaction()
        assert isinstance(delivery.exception(), ProducerFailedError)
        assert not producer.health().live
        with pytest.raises(ProducerFailedError):
            producer.send("t", b"v")

    in_background(scenario, "TV2")


def test_health_says_where_the_transaction_is() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        def state() -> str | None:
            return producer.health().transaction

        assert state() == "ready"
        async with producer.transaction():
            assert state() == "open"
        assert state() == "ready"
        await producer.close()
        assert state() is None
        await producer.start()

    on("TV2", scenario)


# ---------------------------------------------------------------------- starts that fail
def starting(cluster_change: Any, expected: type[Exception], match: str, **options: Any) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(3, network=network, seed=1, now_ms=wall_ms) as cluster:
            cluster_change(cluster)
            producer = producer_of(cluster, network, **options)
            with pytest.raises(expected, match=match):
                await producer.start(10)
            assert producer.health().state.value == "NEW"
            cluster.clear_faults()
            if "transaction_timeout_ms" not in options:
                await producer.start(10)
                async with producer.transaction():
                    producer.send("t", b"v")
            await producer.close()

    run_virtual(whole, seed=1)


def test_an_id_that_is_refused_fails_the_start() -> None:
    starting(
        lambda cluster: cluster.fail_next("InitProducerId", 53),
        ClusterAuthorizationError,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    )
    starting(
        lambda cluster: cluster.fail_next("FindCoordinator", 53),
        ClusterAuthorizationError,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    )


def test_a_timeout_that_brokers_do_not_allow_fails_the_start() -> None:
    starting(lambda cluster: None, ConfigError, "transaction.max.timeout.ms", transaction_timeout_ms=1_000_000)


def test_an_id_that_is_not_given_in_time_fails_the_start() -> None:
    starting(
        lambda cluster: cluster.fail_next("InitProducerId", 15, times=None), RequestTimeoutError, "not given in time"
    )


@pytest.mark.parametrize("code", [14, 15, 16, 51, -1, 7])
@pytest.mark.parametrize("api", ["InitProducerId", "FindCoordinator"])
def test_a_start_waits_for_a_coordinator_that_is_not_ready(api: str, code: int) -> None:
    """faults: X2, X3, broker: 9.2"""
    if (api, code) == ("FindCoordinator", 51):
        return  # a code of transactions

    async def whole(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(3, network=network, seed=1, now_ms=wall_ms) as cluster:
            cluster.fail_next(api, code, times=4)
            async with producer_of(cluster, network) as producer, producer.transaction():
                producer.send("t", b"v")

    run_virtual(whole, seed=1)


# ---------------------------------------------------------------------- options, and what is told
@pytest.mark.parametrize("options", [{"acks": 1}, {"acks": 0}, {"enable_idempotence": False}, {"retries": 0}])
def test_options_that_a_transaction_does_not_allow_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"transactional_id and .* conflict"):
        Producer("b:1", transactional_id="tx", **options)


@pytest.mark.parametrize("transactional_id", ["", "x" * 32768, 5, b"tx"])
def test_an_id_is_a_text_of_some_length(transactional_id: Any) -> None:
    with pytest.raises(ConfigError, match="transactional_id"):
        Producer("b:1", transactional_id=transactional_id)


def test_names_of_other_clients_are_read() -> None:
    config = Producer({
        "bootstrap.servers": "b:1", "transactional.id": "tx", "transaction.timeout.ms": "9000",
    }).config  # fmt: skip
    assert (config.transactional_id, config.transaction_timeout_ms) == ("tx", 9000)


def test_a_producer_without_an_id_says_so() -> None:
    producer = Producer("b:1")
    for call in (producer.transaction, producer.begin_transaction):
        with pytest.raises(UsageError, match="no transactional_id"):
            call()


def test_most_of_the_timeout_gone_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with caplog.at_level(logging.INFO, "aiokprod"):
            producer.begin_transaction()
            await producer.send("t", b"v", partition=0)
            await asyncio.sleep(9.5)
        await producer.commit_transaction()
        assert await committed(cluster) == [b"v"]

    on("TV2", scenario, transaction_timeout_ms=10_000)
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage().startswith("transactional id 'tx' [")
    assert "]: the transaction has been open for 9.0 s" in warning.getMessage()
    assert "aborts it in 1.0 s" in warning.getMessage()
    assert warning.getMessage().endswith("commit or abort was not called yet")


@pytest.mark.parametrize(
    ("api", "waits"),
    [("EndTxn", "it has not answered the commit yet"), ("Produce", "the commit waits for records or offsets of it")],
)
def test_what_a_commit_waits_for_is_told_when_most_of_the_timeout_is_gone(
    api: str, waits: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold(api, before_serving=True)
        asyncio.get_running_loop().call_later(9.5, cluster.release, held)
        with caplog.at_level(logging.WARNING, "aiokprod"):
            async with producer.transaction():
                producer.send("t", b"v", partition=0)
        assert await committed(cluster) == [b"v"]

    on("TV2", scenario, transaction_timeout_ms=10_000)
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage().endswith(waits)


def test_the_log_has_each_state_of_the_id_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            producer.send("t", b"v", partition=0)
        cluster.fail_next("Produce", 44)
        with pytest.raises(TransactionAbortedError):
            async with producer.transaction():
                producer.send("t", b"v", partition=0)

    with caplog.at_level(logging.DEBUG, "aiokprod"):
        on("TV2", scenario)
    name = f"transactional id {ID!r} ["
    told = [each for each in caplog.records if each.getMessage().startswith(name)]
    states = [each.getMessage().partition("]: ")[2].partition(" because ")[0] for each in told]
    assert states == [
        "UNINITIALISED -> INITIALISING", "INITIALISING -> READY",
        "READY -> OPEN", "OPEN -> COMMITTING", "COMMITTING -> READY",  # and not told again within 5 s
        "COMMITTING -> ABORTABLE", "ABORTABLE -> ABORTING", "ABORTING -> READY",
    ]  # fmt: skip
    routine = [each.levelno == logging.DEBUG for each in told]
    assert routine == [False] * 2 + [True] * 3 + [False] * 2 + [True]
