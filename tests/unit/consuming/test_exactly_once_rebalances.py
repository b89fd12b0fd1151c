"""Several members and their producers, while partitions move and tasks are killed: the output is the image of the input."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consuming_rig import Rig, copy, run, value_of
from fake_group import AiokafkaMember, AsyncConfluentMember, ConfluentMember

from aiokprod import exactly_once

SHAPES: dict[str, Any] = {
    "aiokafka": AiokafkaMember,
    "confluent": ConfluentMember,
    "confluent aio": AsyncConfluentMember,
}
EVERY_SHAPE = pytest.mark.parametrize("shape", list(SHAPES))


def test_partitions_that_were_taken_away_are_not_committed_by_a_stale_member() -> None:
    async def scenario(rig: Rig) -> None:
        first, second = rig.member("a"), AiokafkaMember(rig.group, "b")
        async with rig.producer("one") as one, rig.producer("two") as two:

            async def slow() -> None:
                async with exactly_once(first, one, max_records=4, timeout=0.1) as batches:
                    async for records in batches:
                        for record in records:
                            one.send("out", record.value)
                        if second not in rig.group.members:
                            rig.group.join(second)
                            await asyncio.sleep(1)  # the others have its partitions by now
                            assert first.generation == rig.group.generation

            tasks = [asyncio.create_task(slow()), asyncio.create_task(copy(rig, second, two, until=10**9))]
            await asyncio.sleep(20)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert rig.group.refused > 0
        assert rig.group.unchecked == 0
        assert await rig.output() == rig.group.input
        await first.stop()
        await second.stop()

    run(scenario)


def test_what_is_read_after_a_rebalance_is_of_the_new_generation() -> None:
    async def scenario(rig: Rig) -> None:
        consumer, held = rig.member(), {where: log[5:] for where, log in rig.group.logs.items()}
        for log in rig.group.logs.values():
            del log[5:]
        async with rig.producer() as producer:
            copying = asyncio.create_task(copy(rig, consumer, producer, until=20))
            assert len(await rig.output()) == 10
            rig.group.rebalance()
            await asyncio.sleep(1)  # until it is over
            for where, rest in held.items():
                rig.group.logs[where] += rest
            await copying
        assert rig.group.refused == 0
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_a_member_that_was_thrown_out_in_the_middle_of_a_batch_commits_nothing_unchecked() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        is_thrown = False
        async with rig.producer() as producer, exactly_once(consumer, producer, max_records=4, timeout=0.1) as batches:
            async for records in batches:
                for record in records:
                    producer.send("out", record.value)
                if not is_thrown:
                    is_thrown = True
                    consumer.thrown_out()
                if sum((await rig.offsets()).values()) >= 16:
                    batches.stop()
        assert rig.group.unchecked == 0
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


async def instance(rig: Rig, name: str, shape: str, done: asyncio.Event) -> None:
    """Run one instance until it is cancelled, as a process that is started again after each failure."""
    while not done.is_set():
        member = SHAPES[shape](rig.group, name)
        rig.group.join(member)
        try:
            async with (
                rig.producer(f"tx-{name}", delivery_timeout_ms=5000, request_timeout_ms=1000) as producer,
                exactly_once(member, producer, max_records=rig.random.randint(1, 7), timeout=0.2) as batches,
            ):
                async for records in batches:
                    for record in records:
                        producer.send("out", value_of(record))
                    await asyncio.sleep(rig.random.choice([0, 0, 0.01, 0.1]))
                    if rig.random.random() < 0.05:
                        raise ZeroDivisionError
                    if rig.random.random() < 0.03:
                        break
        except ZeroDivisionError:
            pass
        finally:
            await member.stop()


@pytest.mark.slow_after(8)
@EVERY_SHAPE
@pytest.mark.parametrize("seed", range(8))
def test_the_output_is_the_image_of_the_input(shape: str, seed: int) -> None:
    async def scenario(rig: Rig) -> None:
        random, done = rig.random, asyncio.Event()
        rig.group.is_mixed = random.random() < 0.7
        rig.group.spread(random.choice([1, 2, 3]))
        names = ["a", "b"]
        tasks = {name: asyncio.create_task(instance(rig, name, shape, done)) for name in names}
        for _ in range(40):
            await asyncio.sleep(random.choice([0.01, 0.05, 0.2, 0.5]))
            match random.randrange(10):
                case 0 | 1:
                    rig.group.rebalance()
                case 2 | 3:  # killed, and started again
                    name = random.choice(names)
                    tasks[name].cancel()
                    await asyncio.gather(tasks[name], return_exceptions=True)
                    tasks[name] = asyncio.create_task(instance(rig, name, shape, done))
                case 4:
                    rig.cluster.drop_answer(random.choice(["EndTxn", "TxnOffsetCommit", "OffsetFetch", "Produce"]))
                case 5:
                    api = random.choice(["EndTxn", "TxnOffsetCommit", "OffsetFetch", "FindCoordinator"])
                    rig.cluster.fail_next(api, random.choice([14, 15, 16]), times=2)
                case 6:
                    rig.cluster.move_leader("out", 0, random.choice([1, 2, 3]))
                case 7 | 8:  # a consumer that moves by itself
                    positions = random.choice(rig.group.members).positions
                    positions.update({where: 0 for where in positions if random.random() < 0.5})
                case _:
                    pass
        async with asyncio.timeout(200):
            while sum((await rig.offsets()).values()) < sum(log[-1].offset + 1 for log in rig.group.logs.values()):
                pass
        done.set()
        for task in tasks.values():
            task.cancel()
        assert all(
            not isinstance(end, Exception) for end in await asyncio.gather(*tasks.values(), return_exceptions=True)
        )
        assert rig.group.unchecked == 0
        assert await rig.output() == rig.group.input

    run(scenario, each=60, partitions=4, seed=seed, transaction_completion_ms=30)
