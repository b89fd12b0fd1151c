"""The knowledge of a client: topics, brokers that move, hints, hostile entries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from both_loops import Run, both_loops
from client_rig import rig
from fake_cluster import FakeBroker, usual
from scripted_broker import eventually

from aiokprod.cluster.metadata.fetch import BYTES_PER_SLICE
from aiokprod.cluster.metadata.snapshot import BrokerNode, LeaderHint
from aiokprod.errors import (
    ConnectionLostError,
    RequestTimeoutError,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse


@both_loops
def test_a_topic_that_is_wanted_becomes_known(run: Run) -> None:  # faults: T1
    async def scenario() -> None:
        async with rig() as r:
            r.client.want("t")
            await eventually(lambda: r.client.last_error("t") == (3, None))
            assert r.client.topic("t") is None
            r.cluster.topic("t", 1, 2, 3)
            await eventually(lambda: r.client.topic("t") is not None)
            known = r.client.topic("t")
            assert known is not None
            assert [partition.leader_id for partition in known.partitions] == [1, 2, 3]

    run(scenario())


@both_loops
def test_refreshed_waits_for_news_and_not_for_ever(run: Run) -> None:
    async def scenario() -> None:
        async with rig() as r:
            r.cluster.topic("t", 1)
            r.client.want("t")
            await r.client.refreshed(5.0)
            assert r.client.topic("t") is not None
            for broker in r.cluster.brokers.values():
                broker.answers[MetadataRequest] = lambda broker, request: None
            with pytest.raises(RequestTimeoutError):
                await r.client.refreshed(0.1)

    run(scenario())


@both_loops
def test_a_hint_reaches_the_listener(run: Run) -> None:  # faults: P7
    async def scenario() -> None:
        async with rig() as r:
            r.cluster.topic("t", 1)
            await r.known("t")
            new = await r.cluster.add(9)
            address = BrokerNode(id=9, host="127.0.0.1", port=new.port)
            r.client.hint_leaders([LeaderHint("t", 0, 9, 5, address)])
            assert r.listener.changes[-1][1].topics["t"].partitions[0].leader_id == 9
            r.client.dial(9)
            await eventually(lambda: r.client.produce_connection(9) is not None)

    run(scenario())


@both_loops
def test_the_loop_turns_while_twenty_thousand_partitions_are_decoded(run: Run) -> None:  # faults: T19
    async def scenario() -> None:
        async with rig(1) as r:
            for number in range(100):
                r.cluster.topic(f"t{number}", *([1] * 200))
            names = list(r.cluster.topics)
            for name in names:
                r.client.want(name)
            turns = 0

            async def watch() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            encoded = asyncio.Event()

            def prepared(broker: FakeBroker, request: MetadataRequest) -> Any:
                return Prepared(usual(broker, request), encoded)

            r.cluster.brokers[1].answers[MetadataRequest] = prepared
            r.client.refresh("all of them")
            await encoded.wait()
            watcher = asyncio.create_task(watch())
            await eventually(lambda: r.client.topic(names[-1]) is not None)
            watcher.cancel()
            assert len(r.client.snapshot.topics) == 100
            assert turns >= 20_000 * 18 / BYTES_PER_SLICE, "the loop turned between the slices"  # 18 bytes at least

    run(scenario())


class Prepared:
    """An answer that says when it has been encoded: what comes after is the client's time."""

    def __init__(self, answer: MetadataResponse, encoded: asyncio.Event) -> None:
        self.answer = answer
        self.encoded = encoded

    def encode(self, version: int) -> bytes:
        body = self.answer.encode(version)
        self.encoded.set()
        return body


@both_loops
def test_a_produce_connection_is_dialled_and_told(run: Run) -> None:
    async def scenario() -> None:
        async with rig() as r:
            assert r.client.produce_connection(2) is None
            r.client.dial(2)
            r.client.dial(2)
            await eventually(lambda: bool(r.listener.ready))
            node_id, connection = r.listener.ready[0]
            assert node_id == 2
            assert r.client.produce_connection(2) is connection
            assert connection.port == r.cluster.brokers[2].port
            await r.cluster.brokers[2].hang_up()
            await eventually(lambda: r.client.produce_connection(2) is None)
            r.client.dial(2)
            await eventually(lambda: r.client.produce_connection(2) is not None)
            assert len(r.listener.ready) == 2

    run(scenario())


@both_loops
def test_a_dial_that_fails_is_told(run: Run) -> None:
    async def scenario() -> None:
        async with rig() as r:
            await r.cluster.brokers[3].stop()
            r.client.dial(3)
            await eventually(lambda: bool(r.listener.failed))
            assert r.listener.failed[0][0] == 3
            assert isinstance(r.listener.failed[0][1], ConnectionLostError)

    run(scenario())


@both_loops
def test_a_broker_that_moved_is_followed(run: Run) -> None:  # faults: B12
    async def scenario() -> None:
        async with rig() as r:
            r.client.dial(2)
            await eventually(lambda: bool(r.listener.ready))
            old_broker = r.cluster.brokers[2]
            moved = FakeBroker(r.cluster, 2)
            await moved.start()
            r.cluster.brokers[2], r.cluster.brokers[99] = moved, old_broker
            r.cluster.announced[2] = ("127.0.0.1", moved.port)
            await r.client.refreshed(5.0)
            assert not r.listener.ready[0][1].is_open
            r.client.dial(2)
            await eventually(lambda: len(r.listener.ready) == 2)
            assert r.listener.ready[1][1].port == moved.port

    run(scenario())


@both_loops
def test_when_all_brokers_are_replaced_one_by_one_the_old_are_left_alone(run: Run) -> None:  # faults: B13
    async def scenario() -> None:
        async with rig(3, metadata_max_age_ms=50) as r:
            originals = dict(r.cluster.brokers)
            for old_id, new_id in ((1, 11), (2, 12), (3, 13)):
                await r.cluster.add(new_id)
                await eventually(lambda new_id=new_id: new_id in r.client.snapshot.brokers)
                await r.cluster.remove(old_id)
                await eventually(lambda old_id=old_id: old_id not in r.client.snapshot.brokers)
            assert set(r.client.snapshot.brokers) == {11, 12, 13}
            for old in originals.values():
                old.dials = 0
                await old.start()  # would count any further dial
            new = r.cluster.brokers.values()
            asked = sum(len(broker.asked(MetadataRequest)) for broker in new)
            await eventually(lambda: sum(len(broker.asked(MetadataRequest)) for broker in new) > asked + 4)
            assert [old.dials for old in originals.values()] == [0, 0, 0]
            for old in originals.values():
                await old.stop()

    run(scenario())


@both_loops
def test_two_ids_at_one_address_do_not_disturb_each_other(run: Run) -> None:  # faults: B15
    async def scenario() -> None:
        async with rig(1) as r:
            r.cluster.announced = {
                1: ("127.0.0.1", r.cluster.brokers[1].port),
                2: ("127.0.0.1", r.cluster.brokers[1].port),
            }
            r.cluster.topic("t", 1, 2)
            await r.known("t")
            r.client.dial(1)
            r.client.dial(2)
            await eventually(lambda: len(r.listener.ready) == 2)
            one, two = (r.client.produce_connection(node_id) for node_id in (1, 2))
            assert one is not None
            assert two is not None
            assert one is not two
            assert (one.node_id, two.node_id) == (1, 2)

    run(scenario())


@both_loops
def test_hostile_broker_entries_are_dropped(run: Run) -> None:  # faults: H16
    async def scenario() -> None:
        async with rig(1) as r:
            r.cluster.announced |= {-7: ("127.0.0.1", 9092), 5: ("", 9092), 6: ("h", 70_000), 2**31 - 1: ("h", -1)}
            await r.client.refreshed(5.0)
            assert set(r.client.snapshot.brokers) == {1}

    run(scenario())
