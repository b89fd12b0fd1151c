"""The metadata cache alone: what it asks for, and when again."""

from __future__ import annotations

import asyncio

import pytest
from answers import answer, topic
from metadata_rig import Answer, Rig, everything, failing, scene

# ---------------------------------------------------------------------- interest


def test_only_topics_in_use_are_asked_for() -> None:
    async def play(rig: Rig) -> None:
        rig.cache.refresh("start")
        await asyncio.sleep(1)
        rig.cache.want("t")
        assert rig.cache.topic("t") is None
        await asyncio.sleep(1)
        assert rig.asked_since(0) == [[], ["t"]]
        known = rig.cache.topic("t")
        assert known is not None
        assert known.partitions[0].leader_id == 1
        assert rig.cache.last_error("t") is None

    scene(everything, play)


def test_a_wish_for_a_new_topic_asks_for_that_one_and_a_refresh_for_all() -> None:
    async def play(rig: Rig) -> None:
        for name in ("t", "u"):
            rig.cache.want(name)
            await asyncio.sleep(5)
        rig.cache.refresh("a leader moved")
        await asyncio.sleep(5)
        assert rig.asked_since(0) == [["t"], ["u"], ["t", "u"]]

    scene(everything, play)


def test_a_known_topic_is_not_asked_for_again_because_it_is_wanted() -> None:
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(5)
        rig.cache.want("t")
        await asyncio.sleep(5)
        assert len(rig.asked) == 1

    scene(everything, play)


def test_unused_topics_leave_and_used_ones_stay() -> None:  # faults: I21
    async def play(rig: Rig) -> None:
        rig.cache.want("used")
        rig.cache.want("idle")
        for _ in range(7):
            await asyncio.sleep(60)
            assert rig.cache.topic("used") is not None
        assert set(rig.cache.snapshot.topics) == {"used"}
        assert rig.asked[-1][1] == ["used"]
        rig.cache.want("idle")
        await asyncio.sleep(1)
        assert rig.cache.topic("idle") is not None

    scene(everything, play, metadata_max_age_ms=60_000, metadata_max_idle_ms=300_000)


def test_a_topic_that_never_appeared_is_asked_for_as_long_as_a_record_may_wait() -> None:  # faults: T2
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(59)
        assert rig.asked[-1][1] == ["t"]
        await asyncio.sleep(10)
        asked = len(rig.asked)
        await asyncio.sleep(100)
        assert len(rig.asked) == asked
        assert max(rig.gaps) < 1.3
        assert len(rig.asked) < 90

    scene(
        lambda names: answer(*[topic(name, [], error_code=3) for name in names]),
        play,
        metadata_max_idle_ms=5_000,
        max_block_ms=60_000,
    )


# ---------------------------------------------------------------------- repetition


def test_a_topic_that_is_created_later_is_found() -> None:  # faults: T1
    async def play(rig: Rig) -> None:
        born_at = rig.loop.time() + 5
        rig.respond = lambda names: (
            everything(names)
            if rig.loop.time() >= born_at
            else answer(*[topic(name, [], error_code=3) for name in names])
        )
        rig.cache.want("t")
        await asyncio.sleep(4.9)
        assert rig.cache.last_error("t") == (3, None)
        await asyncio.sleep(1.4)
        assert rig.cache.topic("t") is not None

    scene(everything, play)


@pytest.mark.parametrize(
    "response",
    [
        lambda names: answer(*[topic(name, [(-1, 0)]) for name in names]),  # faults: T11
        lambda names: answer(*[topic(name, [(99, 0)]) for name in names]),  # faults: T12
        lambda names: answer(*[topic(name, []) for name in names]),  # faults: T9
        lambda names: answer(*[topic(name, [], error_code=5) for name in names]),
        lambda names: answer(),  # faults: H9
    ],
    ids=["leaderless", "unknown leader", "no partitions", "error", "omitted"],
)
def test_what_is_not_settled_is_asked_for_again_with_backoff(response: Answer) -> None:
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(20)
        assert 15 <= len(rig.asked) <= 30
        assert min(rig.gaps) >= 0.08
        assert max(rig.gaps) <= 1.3
        rig.respond = everything
        await asyncio.sleep(1.3)
        assert rig.cache.topic("t") is not None
        asked = len(rig.asked)
        await asyncio.sleep(30)
        assert len(rig.asked) == asked

    scene(response, play)


@pytest.mark.parametrize("code", [17, 29])
def test_a_refused_topic_is_asked_for_only_when_it_is_wanted_again(code: int) -> None:  # faults: T4
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(10)
        assert rig.cache.last_error("t") == (code, None)
        assert len(rig.asked) == 1
        rig.respond = everything
        rig.cache.want("t")
        await asyncio.sleep(0.2)
        assert rig.asked_since(1) == [["t"]]
        assert rig.cache.topic("t") is not None

    scene(lambda names: answer(*[topic(name, [], error_code=code) for name in names]), play)


def test_a_refused_topic_is_asked_for_again_after_a_failed_request() -> None:
    async def play(rig: Rig) -> None:
        refused = rig.respond
        rig.cache.want("t")
        await asyncio.sleep(10)
        rig.respond = failing()
        rig.cache.want("t")
        await asyncio.sleep(0.15)
        rig.respond = refused
        await asyncio.sleep(10)
        assert rig.asked_since(1)[-1] == ["t"]

    scene(lambda names: answer(*[topic(name, [], error_code=29) for name in names]), play)


def test_five_hundred_partitions_without_leader_are_few_requests() -> None:  # faults: T14
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(30)
        asked = len(rig.asked)
        rig.respond = lambda names: answer(*[topic(name, [(-1, 9)] * 500) for name in names])
        for _ in range(1000):  # every partition keeps asking
            for partition in range(500):
                rig.cache.refresh(f"t-{partition} has no leader")
            await asyncio.sleep(0.01)
        assert 5 <= len(rig.asked) - asked <= 20

    scene(lambda names: answer(*[topic(name, [(1, 1)] * 500) for name in names]), play)


def test_refreshes_that_bring_the_same_news_move_apart() -> None:
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        for _ in range(1000):
            rig.cache.refresh("the leader says it is none")
            await asyncio.sleep(0.01)
        assert len(rig.asked) <= 20

    scene(everything, play)


def test_what_is_known_is_renewed_when_it_is_old() -> None:
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        for _ in range(10):
            await asyncio.sleep(100)
            rig.cache.topic("t")
        assert rig.asked_since(1) == [["t"]] * 3

    scene(everything, play, metadata_max_age_ms=300_000)


def test_an_age_of_minus_one_is_never_too_old() -> None:
    async def play(rig: Rig) -> None:
        rig.cache.want("t")
        await asyncio.sleep(1)
        task = asyncio.create_task(asyncio.sleep(1_000_000))  # else virtual time has nothing to wait for
        await task
        assert len(rig.asked) == 1

    scene(everything, play, metadata_max_age_ms=-1)


@pytest.mark.parametrize("wish", ["want", "refresh"])
def test_a_wish_that_cannot_wake_the_task_is_none(wish: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the stack the task was not woken, and the wish stayed: each half second later the watch had to heal it."""

    async def play(rig: Rig) -> None:
        rig.cache.refresh("start")
        await asyncio.sleep(1)
        with monkeypatch.context() as patch:
            patch.setattr(rig.cache, "_wake_task", raises)
            with pytest.raises(RecursionError):
                getattr(rig.cache, wish)("t")
        await asyncio.sleep(5)
        assert rig.cache.stall(rig.loop.time()) is None
        assert not rig.cache.is_asking
        rig.cache.want("t")
        await asyncio.sleep(0.02)
        assert rig.asked_since(0)[-1] == ["t"]

    def raises() -> None:
        raise RecursionError

    scene(everything, play)
