"""confluent-kafka's consumers, blocking and awaitable."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consuming_rig import Rig, copy, run
from fake_group import AsyncConfluentMember, ConfluentMember, KafkaError, KafkaException

from aiokprod import exactly_once
from aiokprod.consuming.confluent_source import ConfluentSource, code_of, is_confluent
from aiokprod.errors import ClusterError, ConfigError, RecordTypeError, UsageError
from aiokprod.transactions.offsets import GroupMetadata, Offset

EVERY = pytest.mark.parametrize("shape", [ConfluentMember, AsyncConfluentMember], ids=["blocking", "aio"])


@EVERY
def test_batches_are_copied_and_positions_are_those_of_committed_offsets(shape: Any) -> None:
    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        rig.group.join(member)
        member.not_yet = 2  # partitions are not fetched yet
        async with rig.producer() as producer:
            await copy(rig, member, producer, until=20)
        assert await rig.output() == rig.group.input
        assert await rig.offsets() == {("in", 0): 10, ("in", 1): 10}
        assert rig.group.unchecked == 0
        assert member.not_yet == 0

    run(scenario)


@EVERY
def test_batches_may_be_larger_than_the_client_can_be_asked_for(shape: Any) -> None:
    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        rig.group.join(member)
        async with rig.producer() as producer:
            assert await copy(rig, member, producer, until=20, max_records=10**12) == 1
        assert await rig.output() == rig.group.input

    run(scenario)


@EVERY
def test_a_place_is_a_generation_with_partitions(shape: Any) -> None:
    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        source = ConfluentSource(member)
        await source.check()
        assert source.group_id == "g"
        assert await source.place() is None
        rig.group.join(member)
        reading = await source.read(3, 1.0)
        assert len(reading.records) == 3
        assert source.position_of(reading.records[2]) == (("in", 0), Offset(3, "", 3))
        place = reading.place
        assert place is not None and place.member == GroupMetadata("g", 1, "c")
        assert await source.place() == place
        assert await source.seek(place, {("in", 0): 1, ("in", 9): 1})
        assert member.sought == [("in", 0, 1)]
        assert (await source.read(1, 1.0)).records[0].offset() == 1
        rig.group.rebalance()
        assert (await source.read(1, 1.0)).place != place
        assert not await source.seek(place, {})
        member.generation = -1  # thrown out, and its partitions not given back yet
        assert await source.place() is None

    run(scenario)


@EVERY
def test_a_call_goes_on_when_its_task_is_cancelled_and_the_next_one_comes_after_it(shape: Any) -> None:
    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        rig.group.join(member)
        source = ConfluentSource(member)
        place = (await source.read(1, 1.0)).place
        assert place is not None
        member.calls.clear()
        before = source._running
        reading = asyncio.create_task(source.read(2, 1.0))
        while source._running is before:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await source.seek(place, {("in", 0): 0})
        assert member.calls == ["consume", "consume", "seek", "seek"]
        assert [record.offset() for record in (await source.read(2, 1.0)).records] == [0, 1]

    run(scenario)


@EVERY
@pytest.mark.parametrize("turns", range(12))
def test_records_that_are_read_when_nothing_waits_for_them_any_more_are_read_again(shape: Any, turns: int) -> None:
    """A group without committed offsets would never come back to them."""

    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        rig.group.join(member)
        source = ConfluentSource(member)
        assert (await source.read(1, 1.0)).records[0].offset() == 0
        before = source._running
        reading = asyncio.create_task(source.read(2, 1.0))
        while source._running is before:
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0.002)
        if not reading.cancel():
            assert [record.offset() for record in reading.result().records] == [1, 2]
            return
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert [record.offset() for record in (await source.read(2, 1.0)).records] == [1, 2]

    run(scenario)


@EVERY
def test_a_consumer_that_may_commit_by_itself_is_refused(shape: Any) -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.producer() as producer:
            with pytest.raises(ConfigError, match=r"enable\.auto\.offset\.store"):
                await exactly_once(shape(rig.group, stores=True), producer).__aenter__()

    run(scenario)


@EVERY
def test_partitions_by_hand_are_refused(shape: Any) -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.producer() as producer:
            member = shape(rig.group, member=False)
            member.positions = {("in", 0): 0}
            with pytest.raises(UsageError, match="subscribe"):
                await exactly_once(member, producer).__aenter__()
            assert member.positions == {("in", 0): 0}, "nothing was read"
            assert not member.paused

    run(scenario)


@EVERY
@pytest.mark.parametrize("events", [0, 1])
def test_a_member_that_was_thrown_out_during_the_body_is_taken_for_the_next_loop(shape: Any, events: int) -> None:
    """The partitions are kept until the next poll, as librdkafka does: they look like partitions by assign()."""

    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        rig.group.join(member)
        async with rig.producer() as producer:
            with pytest.raises(ZeroDivisionError):
                async with exactly_once(member, producer, max_records=3) as batches:
                    async for _ in batches:
                        member.generation = -1
                        raise ZeroDivisionError
            member.events = [KafkaError(-147)] * events
            assert member.positions, "still assigned"
            await copy(rig, member, producer, until=20)
        assert await rig.output() == rig.group.input
        assert not member.paused

    run(scenario)


@EVERY
@pytest.mark.parametrize("code", [-191, -195, -187, -193, -185, -147])
def test_events_that_pass_are_no_records(shape: Any, code: int) -> None:
    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        member.events = [KafkaError(code)] * 3
        rig.group.join(member)
        async with rig.producer() as producer:
            await copy(rig, member, producer, until=20)
        assert await rig.output() == rig.group.input

    run(scenario)


@EVERY
@pytest.mark.parametrize("code", [29, 3, -150, -196])
def test_errors_of_the_consumer_are_raised(shape: Any, code: int) -> None:
    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        rig.group.join(member)
        async with rig.producer() as producer:
            await copy(rig, member, producer, until=3)
            member.events = [KafkaError(code)]
            with pytest.raises(ClusterError, match=f"_{code}: in a test"):
                await copy(rig, member, producer, until=20)

    run(scenario)


@EVERY
def test_the_end_of_the_loop_does_not_wait_for_a_partition_that_is_never_fetched(shape: Any) -> None:
    """librdkafka 2.16.1 never starts a partition if it was answered NOT_COORDINATOR when it asked for its offset."""

    async def scenario(rig: Rig) -> None:
        member = shape(rig.group)
        rig.group.join(member)
        rig.group.is_mixed = True
        async with rig.producer() as producer:
            await copy(rig, member, producer, until=6, max_records=6)  # the group has an offset of each partition
            other = shape(rig.group, "d")
            rig.group.join(other)
            began = 0.0
            with pytest.raises(ClusterError, match="_16: in a test") as caught:
                async with exactly_once(member, producer, max_records=3, timeout=0.1) as batches:
                    async for _ in batches:
                        (mine,) = member.positions
                        rig.group.leave(other)
                        member.unstarted = set(rig.group.logs) - {mine}
                        asyncio.get_running_loop().call_later(2, member.events.append, KafkaError(16))
                        began = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - began < 10, "max_block_ms is a minute"
            assert not [note for note in caught.value.__notes__ if "could not undo" in note]
            member.unstarted = set()
            await copy(rig, member, producer, until=20 - sum((await rig.offsets()).values()))
        assert await rig.output() == rig.group.input

    run(scenario)


def test_a_consumer_without_consume_is_named() -> None:
    async def scenario(rig: Rig) -> None:
        class DeserializingConsumer(ConfluentMember):
            def consume(self, *_: object) -> Any:
                raise NotImplementedError

        async with rig.producer() as producer:
            with pytest.raises(RecordTypeError, match="DeserializingConsumer"):
                await copy(rig, DeserializingConsumer(rig.group), producer, until=1)

    run(scenario)


def test_codes_of_exceptions() -> None:
    assert code_of(KafkaException(KafkaError(-186))) == -186
    assert code_of(KafkaException()) is code_of(KeyError("code")) is None


def test_the_real_consumer_is_known() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    options = {"bootstrap.servers": "localhost:1", "group.id": "g", "log_level": 0, "enable.auto.commit": False}
    silent = confluent_kafka.Consumer(options | {"enable.auto.offset.store": False})
    stores = confluent_kafka.Consumer(options)

    async def scenario(rig: Rig) -> None:
        for consumer in (silent, stores):
            assert is_confluent(consumer)
        source = ConfluentSource(silent)
        await source.check()
        assert (source.group_id, await source.place()) == ("g", None)
        with pytest.raises(ConfigError, match=r"enable\.auto\.offset\.store"):
            await ConfluentSource(stores).check()

    try:
        run(scenario)
    finally:
        silent.close()
        stores.close()
