"""aiokafka's own class has what the source reads of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from aiokprod.consuming.aiokafka_source import NEEDED, AiokafkaSource, is_aiokafka
from aiokprod.errors import ConfigError, UsageError
from aiokprod.transactions.offsets import GroupMetadata


def test_the_real_consumer_has_what_is_read() -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def scenario() -> None:
        good = {"group_id": "g", "enable_auto_commit": False, "isolation_level": "read_committed"}
        consumer = aiokafka.AIOKafkaConsumer("in", **good)
        assert is_aiokafka(consumer)
        assert all(hasattr(consumer, name) for name in NEEDED)
        source = AiokafkaSource(consumer)
        with pytest.raises(UsageError, match="start"):
            await source.check()
        assert await source.place() is None
        consumer._coordinator = SimpleNamespace(group_id="g", generation=3, member_id="m", _group_instance_id=None)
        assert await source.place() is None
        tp = aiokafka.TopicPartition("in", 0)
        consumer._subscription.assign_from_subscribed({tp})
        place = await source.place()
        assert place is not None
        assert (place.member, place.partitions) == (GroupMetadata("g", 3, "m"), {("in", 0)})
        sought: list[object] = []
        consumer._fetcher = SimpleNamespace(seek_to=lambda *where: sought.append(where))
        assert await source.seek(place, {("in", 0): 7})
        assert sought == [(tp, 7)]
        consumer._subscription.begin_reassignment()
        assert await source.place() is None
        for wrong, error in (
            ({"enable_auto_commit": True}, ConfigError),
            ({"isolation_level": "read_uncommitted"}, ConfigError),
            ({"group_id": None}, UsageError),
        ):
            other = aiokafka.AIOKafkaConsumer("in", **(good | wrong))
            with pytest.raises(error):
                AiokafkaSource(other)
            other._closed = True  # nothing of it was started
        by_hand = aiokafka.AIOKafkaConsumer(**good)
        by_hand.assign([tp])
        by_hand._closed = consumer._closed = True
        place = await AiokafkaSource(by_hand).place()
        assert place is not None and place.member == GroupMetadata("g")

    asyncio.run(scenario())
