"""The cache alone, in virtual time: its neighbour is a function that answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from answers import answer, topic
from virtual_time import run_virtual

from aiokprod.cluster.metadata import FIRST_TIMEOUT_S, MetadataCache
from aiokprod.cluster.snapshot import BrokerNode, ClusterSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ConnectionLostError
from aiokprod.wire.messages.metadata import MetadataResponse

Answer = Callable[[list[str]], MetadataResponse]


class Rig:
    """A cache, what it asked for, and what it told."""

    def __init__(self, respond: Answer, **options: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.respond = respond
        self.takes_s = 0.01
        self.asked: list[tuple[float, list[str]]] = []
        self.timeouts: list[float] = []
        self.in_flight = 0
        self.changes: list[tuple[ClusterSnapshot, ClusterSnapshot]] = []
        self.failures: list[AiokprodError] = []
        self.answers = 0
        self.cache = MetadataCache(
            ProducerConfig(bootstrap_servers="b:1", **options),
            fetch=self.fetch,
            changed=lambda old, new: self.changes.append((old, new)),
            answered=self.answered,
            failed=self.failures.append,
            clock=self.loop.time,
            random=Random(1),
        )

    def answered(self) -> None:
        self.answers += 1

    async def fetch(self, topics: list[str], timeout_s: float) -> MetadataResponse:
        self.asked.append((self.loop.time(), sorted(topics)))
        self.timeouts.append(timeout_s)
        self.in_flight += 1
        assert self.in_flight == 1, "two requests in flight"
        try:
            await asyncio.sleep(self.takes_s)
            return self.respond(topics)
        finally:
            self.in_flight -= 1

    @property
    def gaps(self) -> list[float]:
        times = [at for at, _ in self.asked]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    def asked_since(self, number: int) -> list[list[str]]:
        return [names for _, names in self.asked[number:]]


def everything(names: list[str]) -> MetadataResponse:
    return answer(*[topic(name) for name in names])


def scene(respond: Answer, play: Callable[[Rig], Awaitable[None]], **options: float) -> None:
    async def scenario() -> None:
        rig = Rig(respond, **options)
        task = asyncio.create_task(rig.cache.run())
        try:
            await play(rig)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run_virtual(scenario())


def failing(error: AiokprodError | None = None) -> Answer:
    def respond(names: list[str]) -> MetadataResponse:
        raise error or ConnectionLostError("nobody there")

    return respond


# -- interest -----------------------------------------------------------------------------------------------------


def test_only_topics_somebody_wants_are_asked_for() -> None:
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


# -- repetition ---------------------------------------------------------------------------------------------------


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


# -- failures -----------------------------------------------------------------------------------------------------


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


# -- telling ------------------------------------------------------------------------------------------------------


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
        rig.cache.hint_leader("t", 0, 2, 7, None)
        rig.cache.hint_leader("t", 0, 3, 6, None)
        rig.cache.hint_leader("t", 0, 9, 8, BrokerNode(id=9, host="h", port=1))
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
        rig.cache.hint_leader("t", 0, 2, 7, None)
        await asyncio.sleep(2)
        assert rig.answers == 2
        assert rig.cache.snapshot.topics["t"].partitions[0].leader_id == 2

    scene(everything, play)


# -- waiting ------------------------------------------------------------------------------------------------------


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


def test_a_waiter_asks_if_nobody_did() -> None:
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


def test_a_cancelled_waiter_touches_nobody() -> None:
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
