"""The place of aiokafka's consumer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from consuming_rig import Rig, run
from fake_group import AiokafkaMember

from aiokprod.consuming.aiokafka_source import AiokafkaSource, is_aiokafka
from aiokprod.errors import RecordTypeError
from aiokprod.transactions.offsets import GroupMetadata


def test_there_is_no_place_while_the_generation_is_new_and_the_partitions_are_old() -> None:
    async def scenario(rig: Rig) -> None:
        member = AiokafkaMember(rig.group)
        source = AiokafkaSource(member)
        await source.check()
        assert await source.place() is None
        rig.group.join(member)
        await member._joined.wait()
        first = await source.place()
        assert first is not None
        assert first.member == GroupMetadata("g", 1, "a")
        assert first.partitions == {("in", 0), ("in", 1)}
        assert await source.place() == first
        rig.group.rebalance()
        while member._coordinator.generation == 1:
            if member._subscription.reassignment_in_progress:
                assert await source.place() is None
            await asyncio.sleep(0.001)
        assert member._current.assignment.active
        assert await source.place() is None
        await member._joined.wait()
        second = await source.place()
        assert second is not None and second != first
        assert not await source.seek(first, {("in", 0): 5})
        assert await source.seek(second, {("in", 0): 5, ("in", 7): 1})
        assert member.sought == [("in", 0, 5)]
        await member.stop()

    run(scenario)


def test_a_member_that_was_thrown_out_has_no_place() -> None:
    async def scenario(rig: Rig) -> None:
        member = rig.member()
        await member._joined.wait()
        member._coordinator.generation, member._coordinator.member_id = -1, ""
        source = AiokafkaSource(member)
        assert await source.place() is None
        member._current.assignment.active = False
        assert await source.place() is None
        await member.stop()

    run(scenario)


def test_another_assignment_of_the_same_partitions_is_another_place() -> None:
    async def scenario(rig: Rig) -> None:
        member = AiokafkaMember(rig.group)
        member.assigned_by_hand()
        source = AiokafkaSource(member)
        first = await source.place()
        member.assigned_by_hand()
        assert first is not None
        assert await source.place() != first
        assert first.member == GroupMetadata("g")

    run(scenario)


def test_a_release_that_is_not_known_is_refused() -> None:
    lacking = SimpleNamespace(getmany=print, seek=print, assignment=print, seek_to_committed=print)
    assert is_aiokafka(lacking)
    with pytest.raises(RecordTypeError, match="release of aiokafka"):
        AiokafkaSource(lacking)
