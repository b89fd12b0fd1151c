"""Identities and versions in transactions: epochs, ids and protocols, as coordinators and the feature say."""

from __future__ import annotations

import asyncio

import pytest
from txn_rig import CLUSTERS, ID, committed, run

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import ProducerFencedError, TransactionAbortedError
from aiokprod.testing import MockCluster
from aiokprod.testing.mock.transactions.metadata import LAST_EPOCH
from aiokprod.wire.messages.find_coordinator import FindCoordinatorResponse

EVERY = pytest.mark.parametrize("version", CLUSTERS)
PRODUCE, END_TXN, ADD_PARTITIONS, OFFSET_COMMIT = 0, 26, 24, 28


def versions_seen(cluster: MockCluster) -> dict[int, set[int]]:
    """Return the versions of requests about transactions, by their APIs."""
    seen: dict[int, set[int]] = {}
    for request in cluster.counters.recent:
        seen.setdefault(request.api_key, set()).add(request.version)
    return {key: seen[key] for key in (PRODUCE, END_TXN, ADD_PARTITIONS, OFFSET_COMMIT) if key in seen}


async def one(producer: Producer, value: bytes) -> None:
    async with producer.transaction() as transaction:
        await producer.send("t", value, partition=0)
        await transaction.send_offsets({("t", 0): 1}, "g")


def written(cluster: MockCluster) -> list[tuple[int, int, int]]:
    """Return producer id, epoch and first sequence of each batch of records in the first partition."""
    batches = (batch for batch in cluster.log("t", 0) if not batch.is_control)
    return [(batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in batches]


def test_each_transaction_of_version_two_has_the_next_epoch_and_sequences_from_zero() -> None:
    """faults: X19"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for number in range(3):
            await one(producer, b"%d" % number)
        identities = written(cluster)
        assert [sequence for _, _, sequence in identities] == [0, 0, 0]
        first = identities[0]
        assert identities == [(first[0], first[1] + number, 0) for number in range(3)]
        assert await committed(cluster) == [b"0", b"1", b"2"]

    run(scenario, CLUSTERS["TV2"])


def test_a_new_producer_id_at_the_end_of_the_epochs_is_taken() -> None:
    """faults: X19"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        await one(producer, b"0")
        # Not by 32,766 transactions: the coordinator and the producer are both near the end of the epochs.
        cluster._transactions.coordinator.ids[ID].epoch = LAST_EPOCH - 1
        await producer.close()
        await producer.start()
        await one(producer, b"1")
        await one(producer, b"2")
        ids = [producer_id for producer_id, _, _ in written(cluster)]
        assert len(set(ids)) > 1 and len(written(cluster)) == 3
        assert written(cluster)[-1][2] == 0
        assert await committed(cluster) == [b"0", b"1", b"2"]

    run(scenario, CLUSTERS["TV2"])


@pytest.mark.parametrize("version", ["TV1", "TV0"])
def test_the_feature_decides_and_not_what_brokers_offer(version: str) -> None:
    """faults: X20"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        await one(producer, b"0")
        seen = versions_seen(cluster)
        assert max(seen[PRODUCE]) <= 11 and max(seen[END_TXN]) <= 4
        assert max(seen[ADD_PARTITIONS]) <= 3 and max(seen[OFFSET_COMMIT]) <= 4
        cluster.set_transaction_version(2)
        cluster.close_connections()  # brokers that restart tell it; connections that stay do not
        await producer.partitions_for("t")
        await one(producer, b"1")
        await one(producer, b"2")
        assert await committed(cluster) == [b"0", b"1", b"2"]

    run(scenario, CLUSTERS[version])


@pytest.mark.parametrize("version", list(CLUSTERS))
def test_a_change_of_the_feature_is_followed_at_the_next_begin(version: str) -> None:
    """faults: X20, broker: 10.10"""
    changed = 1 if version == "TV2" else 2

    def last(cluster: MockCluster) -> tuple[bool, int]:
        """Return whether the last transaction was one of the second version, by its Produce and by its EndTxn."""
        return cluster.requests("Produce")[-1].version > 11, cluster.requests("EndTxn")[-1].version

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        before, after = ((True, 5), (False, 4)) if version == "TV2" else ((False, 4), (True, 5))
        async with producer.transaction():
            await producer.send("t", b"0", partition=0)
            cluster.set_transaction_version(changed)
            cluster.close_connections()  # brokers that restart tell it
            await producer.send("t", b"0", partition=1)
        assert last(cluster) == before, "the one that was open goes on as it began"
        await one(producer, b"1")
        assert last(cluster) == after
        late = cluster._brokers[cluster.leader("t", 0) or 0]
        late.features, late.features_epoch = {"transaction.version": 3 - changed}, 0  # has not heard of it yet
        cluster.close_connections()
        await one(producer, b"2")  # connects to it
        await one(producer, b"3")
        assert last(cluster) == after, "the newest epoch counts"
        assert await committed(cluster) == [b"0", b"1", b"2", b"3", b"0"]

    run(scenario, CLUSTERS[version])


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "aborts"])
@pytest.mark.parametrize("version", ["TV1", "TV0"])
def test_the_markers_before_the_change_do_not_end_the_first_transaction_behind_it(version: str, commits: bool) -> None:
    """broker: 10.10"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.hold_markers()
        producer.begin_transaction()
        await producer.send("t", b"0", partition=0)
        await producer.send_offsets_to_transaction({("t", 0): 1}, "g")
        cluster.set_transaction_version(2)
        cluster.close_connections()  # brokers that restart tell it
        await asyncio.sleep(0.2)  # virtual: nothing of the transaction is lost, which would renew the epoch anyway
        await producer.ping()
        await producer.commit_transaction()
        producer.begin_transaction()
        sent = producer.send("t", b"1", partition=0)
        offsets = asyncio.ensure_future(producer.send_offsets_to_transaction({("t", 0): 2}, "g"))
        await asyncio.sleep(1)
        assert not sent.done() and not offsets.done()
        cluster.release_markers()
        await sent
        await offsets
        assert cluster.requests("Produce")[-1].version > 11
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        assert await committed(cluster) == ([b"0", b"1"] if commits else [b"0"])
        assert cluster.committed_offsets("g")["t", 0].offset == (2 if commits else 1)

    run(scenario, CLUSTERS[version])


@EVERY
@pytest.mark.parametrize("form", ["block", "long"])
def test_an_id_that_the_coordinator_has_forgotten_is_taken_again(version: str, form: str) -> None:
    """faults: I15, broker: 9.6"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        await one(producer, b"0")
        await asyncio.sleep(1)
        cluster.lose_transaction(ID)  # idle for seven days
        if form == "block":
            with pytest.raises(TransactionAbortedError):
                await one(producer, b"1")
        else:
            producer.begin_transaction()
            with pytest.raises(TransactionAbortedError):
                await producer.send("t", b"1", partition=0)
            with pytest.raises(TransactionAbortedError):
                await producer.commit_transaction()
            assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        assert producer.health().live and producer.health().ready
        await one(producer, b"2")
        assert await committed(cluster) == [b"0", b"2"]

    run(scenario, CLUSTERS[version])


async def taken_over(producer: Producer, new: Producer) -> None:
    """Write a record; another instance takes the id, and again: it has another producer id then."""
    await producer.send("t", b"old", partition=0)
    async with Producer(producer.config):
        pass
    await new.start()


@EVERY
@pytest.mark.parametrize("form", ["block", "block awaits", "long"])
def test_an_instance_behind_the_last_epoch_is_fenced(version: str, form: str) -> None:
    """broker: 9.10"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster._transactions.coordinator.ids[ID].epoch = LAST_EPOCH - 2
        await producer.close()
        await producer.start()
        new = Producer(producer.config)
        with pytest.raises(ProducerFencedError):
            if form == "long":
                producer.begin_transaction()
                await taken_over(producer, new)
                with pytest.raises(TransactionAbortedError):
                    await producer.commit_transaction()
                await producer.abort_transaction()
            else:
                async with producer.transaction():
                    await taken_over(producer, new)
                    if form == "block awaits":
                        await producer.send("t", b"more", partition=1)
        async with new:
            with pytest.raises(ProducerFencedError):
                producer.begin_transaction()
            await one(new, b"new")
        assert await committed(cluster) == [b"new"]

    run(scenario, CLUSTERS[version])


@EVERY
@pytest.mark.parametrize("place", ["send", "offsets", "commit", "own"])
def test_a_zombie_is_told_that_it_is_fenced(version: str, place: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(ZeroDivisionError if place == "own" else ProducerFencedError) as raised:
            async with producer.transaction() as transaction:
                await producer.send("t", b"0", partition=0)
                async with Producer(producer.config):
                    pass
                if place == "send":
                    await producer.send("t", b"1", partition=1)
                elif place == "offsets":
                    await transaction.send_offsets({("in", 0): 1}, "g")
                elif place == "own":
                    raise ZeroDivisionError
        assert (place == "own") == any(
            "not be aborted (ProducerFencedError)" in note for note in raised.value.__notes__
        )
        assert not producer.health().live
        assert await committed(cluster) == []

    run(scenario, CLUSTERS[version])


@pytest.mark.parametrize(
    ("node", "host"),
    [pytest.param(99, "127.0.0.1", id="no broker"), pytest.param(2, "other.example", id="another broker, elsewhere")],
)
def test_a_look_up_that_names_the_wrong_coordinator_is_done_again(node: int, host: str) -> None:
    """faults: H20"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        def lie(answer: object, version: int) -> object:
            assert isinstance(answer, FindCoordinatorResponse)
            answer.node_id, answer.host, answer.port = node, host, 1
            return answer

        cluster.move_coordinator(ID, 3)
        told = cluster.rewrite_answer("FindCoordinator", lie, times=2)
        await one(producer, b"0")
        assert told.hits == 2
        assert await committed(cluster) == [b"0"]

    run(scenario, CLUSTERS["TV1"])


@pytest.mark.parametrize("version", ["TV2", "TV1"])
def test_a_broker_of_an_older_release_among_newer_ones(version: str) -> None:
    """faults: X20"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        node = cluster.coordinator(ID) % 3 + 1  # not the coordinator yet
        cluster.cap_versions(node, "EndTxn", 0, 4)
        cluster.cap_versions(node, "Produce", 3, 11)
        await one(producer, b"0")
        if version == "TV1":
            cluster.move_coordinator(ID, node)
            cluster.move_leader("t", 0, node)
            await one(producer, b"1")
        assert await committed(cluster) == [b"0", b"1"][: 2 if version == "TV1" else 1]

    run(scenario, CLUSTERS[version])
