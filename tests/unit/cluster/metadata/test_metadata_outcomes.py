"""The metadata cache alone: requests that fail, news that is told, tasks that wait for an answer."""

from __future__ import annotations

import asyncio

import pytest
from answers import answer, topic
from metadata_rig import Rig, everything, failing, scene
from virtual_time import run_virtual

from aiokprod.cluster.metadata.cache import FIRST_TIMEOUT_S
from aiokprod.cluster.metadata.snapshot import PARTITIONS_PER_SLICE, BrokerNode, LeaderHint
from aiokprod.errors import ConnectionLostError
from aiokprod.wire.messages.metadata import MetadataResponse

# ---------------------------------------------------------------------- failures


def test_failed_requests_move_apart_and_are_told() -> None:  # faults: N16
    async def play(rig: Rig) -> None:
        rig.cache.refresh("start")
        await asyncio.sleep(600)
        assert len(rig.asked) == len(rig.failures) <= 760
        assert min(rig.gaps) >= 0.08
        assert isinstance(rig.cache.last_failure, ConnectionLostError)
        assert rig.cache.failing_since == pytest.approx(rig.asked[0][0] + rig.takes_s)
        assert rig.cache.last_error("t") == (0, rig.cache.last_failure)
        rig.respond = everything
        await asyncio.sleep(2)
        assert rig.cache.last_failure is None
        assert rig.cache.failing_since is None
        assert rig.cache.snapshot.version == 1

    scene(failing(), play)


def test_a_broker_is_given_less_time_than_the_request_timeout_at_first() -> None:  # faults: T17
    async def play(rig: Rig) -> None:
        rig.cache.refresh("start")
        await asyncio.sleep(60)
        assert rig.timeouts[:4] == [FIRST_TIMEOUT_S, 10.0, 20.0, 30.0]
        assert set(rig.timeouts[4:]) == {30.0}
        rig.respond = everything
        await asyncio.sleep(2)
        rig.cache.refresh("again")
        await asyncio.sleep(2)
        assert rig.timeouts[-1] == FIRST_TIMEOUT_S

    scene(failing(), play)


def test_a_finalizer_that_sends_to_a_new_topic_while_an_answer_is_taken_in_does_no_harm() -> None:
    async def play(rig: Rig) -> None:
        cache, is_settled = rig.cache, rig.cache._is_settled

        def collected(name: str) -> bool:
            if len(rig.cache._awaited) < 4:
                cache.want(f"new-{len(cache._awaited)}")
            return is_settled(name)

        cache._is_settled = collected  # type: ignore[method-assign]
        cache.want("t")
        cache.want("u")
        await asyncio.sleep(2)
        assert {"t", "u", "new-1", "new-2"} <= cache.snapshot.topics.keys()

    scene(everything, play)


def test_a_failed_refresh_keeps_what_is_known() -> None:
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(1)
        known = rig.cache.snapshot
        rig.respond = failing()
        rig.cache.refresh("news")
        await asyncio.sleep(60)
        assert rig.cache.snapshot is known
        assert rig.cache.topic("t") is not None

    scene(everything, play)


def test_a_bug_in_a_fetch_ends_the_task() -> None:  # faults: L15
    async def scenario() -> None:
        rig = Rig(everything)

        def bug(names: list[str]) -> MetadataResponse:
            raise ZeroDivisionError

        rig.respond = bug
        rig.cache.refresh("start")
        with pytest.raises(ZeroDivisionError):
            await rig.cache.run()

    run_virtual(scenario())


# ---------------------------------------------------------------------- telling


def test_every_answer_is_told_with_the_snapshot_before() -> None:
    async def play(rig: Rig) -> None:
        for _ in range(3):
            rig.cache.refresh("news")
            await asyncio.sleep(5)
        assert [new.version for _, new in rig.changes] == [1, 2, 3]
        assert [old for old, _ in rig.changes][1:] == [new for _, new in rig.changes][:-1]
        assert rig.answers == 3

    scene(everything, play)


def test_a_hint_is_told_if_it_is_news() -> None:  # faults: P7
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(1)
        rig.cache.hint_leaders([LeaderHint("t", 0, 2, 7, None)])
        rig.cache.hint_leaders([LeaderHint("t", 0, 3, 6, None)])
        rig.cache.hint_leaders([LeaderHint("t", 0, 9, 8, BrokerNode(id=9, host="h", port=1))])
        assert [new.topics["t"].partitions[0].leader_id for _, new in rig.changes] == [1, 2, 9]
        assert rig.answers == 1

    scene(everything, play)


def test_a_hint_during_a_request_survives_its_answer() -> None:
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(5)
        rig.takes_s = 1.0
        rig.cache.refresh("news")
        await asyncio.sleep(0.5)
        rig.cache.hint_leaders([LeaderHint("t", 0, 2, 7, None)])
        await asyncio.sleep(2)
        assert rig.answers == 2
        assert rig.cache.snapshot.topics["t"].partitions[0].leader_id == 2

    scene(everything, play)


# ---------------------------------------------------------------------- waiting


def test_a_waiter_gets_the_answer_to_a_later_request() -> None:
    async def play(rig: Rig) -> None:
        rig.takes_s = 1.0
        rig.cache.refresh("start")
        await asyncio.sleep(0.5)  # a request is in flight, and does not know of the topic
        rig.cache.want("t")
        began = rig.loop.time()
        await rig.cache.refreshed()
        assert rig.cache.topic("t") is not None
        assert rig.loop.time() - began > 1.0
        assert len(rig.asked) == 2

    scene(everything, play)


def test_a_waiter_asks_if_no_other_did() -> None:
    async def play(rig: Rig) -> None:
        await rig.cache.refreshed()
        assert len(rig.asked) == 1

    scene(everything, play)


def test_waiters_outlast_failures() -> None:
    async def play(rig: Rig) -> None:
        waiter = asyncio.create_task(rig.cache.refreshed())
        await asyncio.sleep(20)
        assert not waiter.done()
        rig.respond = everything
        await waiter
        assert rig.cache.snapshot.version == 1

    scene(failing(), play)


def test_a_cancelled_waiter_touches_no_other() -> None:
    async def play(rig: Rig) -> None:
        waiters = [asyncio.create_task(rig.cache.refreshed()) for _ in range(10)]
        await asyncio.sleep(0)
        waiters[3].cancel()
        done = await asyncio.gather(*waiters, return_exceptions=True)
        assert [result for result in done if result is not None] == [done[3]]
        assert isinstance(done[3], asyncio.CancelledError)
        assert len(rig.asked) == 1

    scene(everything, play)


def test_waiters_are_told_when_the_client_closes() -> None:
    async def play(rig: Rig) -> None:
        waiters = [asyncio.create_task(rig.cache.refreshed()) for _ in range(2)]
        await asyncio.sleep(1)
        rig.cache.end(ConnectionLostError("closed"))
        errors = await asyncio.gather(*waiters, return_exceptions=True)
        assert all(isinstance(error, ConnectionLostError) for error in errors)
        assert errors[0] is not errors[1]

    scene(failing(), play)


# ---------------------------------------------------------------------- large answers

LARGE = 20_000


def large(names: list[str]) -> MetadataResponse:
    return answer(*[topic(name, [(1, 5)] * LARGE) for name in names])


def test_a_large_answer_is_merged_in_slices() -> None:  # faults: T19, H25
    async def play(rig: Rig) -> None:
        rig.takes_s = 0.0
        rig.cache.want("t")
        turns = 0
        while rig.cache.topic("t") is None:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= LARGE // PARTITIONS_PER_SLICE
        assert [new.version for _, new in rig.changes] == [1]

    scene(large, play)


@pytest.mark.parametrize("hints", [1, 2, 50])
def test_hints_between_the_slices_of_a_merge_are_not_lost(hints: int) -> None:  # faults: P7
    async def play(rig: Rig) -> None:
        rig.takes_s = 0.0
        rig.cache.want("t")
        await asyncio.sleep(1)
        changes = len(rig.changes)
        hinting: list[asyncio.Task[None]] = []

        async def hint() -> None:
            for epoch in range(6, 6 + hints):
                await asyncio.sleep(0)
                rig.cache.hint_leaders([LeaderHint("t", 0, 2, epoch, None)])

        def respond(names: list[str]) -> MetadataResponse:
            hinting.append(asyncio.create_task(hint()))
            return large(names)

        rig.respond = respond
        rig.cache.refresh("news")
        await asyncio.sleep(1)
        assert [task.done() for task in hinting] == [True]
        told = [new.topics["t"].partitions[0].leader_epoch for _, new in rig.changes[changes:]]
        assert told == sorted(told)
        assert told[-1] == 5 + hints
        known = rig.cache.topic("t")
        assert known is not None
        assert (known.partitions[0].leader_id, known.partitions[0].leader_epoch) == (2, 5 + hints)
        assert len(known.partitions) == LARGE

    scene(large, play)


def test_a_topic_that_leaves_between_the_slices_of_a_merge_does_no_harm() -> None:
    async def play(rig: Rig) -> None:
        rig.takes_s = 0.0
        rig.cache.want("t")
        for number in range(20):
            rig.cache.want(f"more-{number}")
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert all(rig.cache.topic(f"more-{number}") for number in range(20))

    scene(large, play)
