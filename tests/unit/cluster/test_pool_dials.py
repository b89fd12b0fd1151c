"""The pool alone, in virtual time: its dials, and how fast they follow each other."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from pool_rig import CONTROL, PRODUCE, PoolRig, node, refused, scene
from virtual_time import run_virtual

from aiokprod.cluster.connection.lease import Lease, Look
from aiokprod.cluster.metadata.snapshot import BrokerNode
from aiokprod.cluster.pool import DIALS_AT_ONCE
from aiokprod.errors import AuthenticationError, ConnectionLostError

# ---------------------------------------------------------------------- dialling


def test_the_work_for_a_new_connection_does_not_grow_with_those_that_are_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # faults: H16
    looks = 0
    look = Lease.look

    def counted(lease: Lease, now: float, max_idle_s: float) -> Look:
        nonlocal looks
        looks += 1
        return look(lease, now, max_idle_s)

    async def play(rig: PoolRig) -> None:
        for node_id in range(100):
            await rig.connect(node_id)
        assert looks <= 300
        assert len(rig.pool.open_for(PRODUCE)) == 100
        await asyncio.sleep(1000)  # the timer that each of them set is the one that ends them
        assert rig.pool.open_for(PRODUCE) == []

    monkeypatch.setattr(Lease, "look", counted)
    scene(play, *range(100), connections_max_idle_ms=60_000)


def test_a_dial_gives_a_connection_and_tells() -> None:
    async def play(rig: PoolRig) -> None:
        assert rig.pool.get(1, PRODUCE) is None
        rig.pool.dial(1, PRODUCE)
        assert rig.ready == []
        await asyncio.sleep(0.1)
        assert rig.ready == [(1, rig.opened[0])]
        assert rig.pool.get(1, PRODUCE) is rig.opened[0]
        rig.pool.dial(1, PRODUCE)
        await asyncio.sleep(0.1)
        assert len(rig.dials) == 1

    scene(play)


def test_dials_have_names() -> None:
    async def play(rig: PoolRig) -> None:
        rig.pool.dial(3, PRODUCE)
        rig.pool.dial(3, CONTROL)
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert {"dial-3", "dial-3-control"} <= names

    scene(play)


def test_all_callers_wait_for_the_same_dial_and_one_may_leave() -> None:
    async def play(rig: PoolRig) -> None:
        waiters = [asyncio.create_task(rig.connect(1)) for _ in range(5)]
        await asyncio.sleep(0)
        waiters[2].cancel()
        done = await asyncio.gather(*waiters, return_exceptions=True)
        assert isinstance(done[2], asyncio.CancelledError)
        assert {id(result) for index, result in enumerate(done) if index != 2} == {id(rig.opened[0])}
        assert len(rig.dials) == 1

    scene(play)


def test_a_failed_dial_gives_each_waiter_an_error_of_its_own() -> None:
    async def play(rig: PoolRig) -> None:
        rig.refuse = refused
        done = await asyncio.gather(*(rig.connect(1) for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in done] == ["refused"] * 3
        assert len({id(error) for error in done}) == 3
        assert [node_id for node_id, _ in rig.failed] == [1]
        assert str(rig.pool.last_error(1)) == "refused"
        rig.refuse = lambda where: None
        await rig.connect(1)
        assert rig.pool.last_error(1) is None

    scene(play)


def test_produce_and_control_have_connections_of_their_own() -> None:
    async def play(rig: PoolRig) -> None:
        produce, control = await rig.connect(1, PRODUCE), await rig.connect(1, CONTROL)
        assert produce is not control
        assert rig.pool.open_for(CONTROL) == [control]
        assert [node_id for node_id, _ in rig.ready] == [1]

    scene(play)


def test_control_dials_are_not_told_to_the_pipeline() -> None:
    async def play(rig: PoolRig) -> None:
        rig.refuse = refused
        with pytest.raises(ConnectionLostError):
            await rig.connect(1, CONTROL)
        assert (rig.failed, rig.ready) == ([], [])

    scene(play)


def test_two_ids_at_one_address_have_two_connections() -> None:  # faults: B15
    async def play(rig: PoolRig) -> None:
        rig.pool.know([node(1, "same"), node(2, "same")])
        one, two = await rig.connect(1), await rig.connect(2)
        assert one is not two
        assert (one.node_id, two.node_id) == (1, 2)
        one.close(ConnectionLostError("reset"))
        assert rig.pool.get(2, PRODUCE) is two

    scene(play)


def test_a_connection_that_is_over_before_it_is_handed_on_is_a_failed_dial() -> None:
    async def play(rig: PoolRig) -> None:
        rig.prepare = lambda connection: connection.close(ConnectionLostError("reset"))
        with pytest.raises(ConnectionLostError, match="as soon as"):
            await rig.connect(1)
        assert rig.pool.get(1, PRODUCE) is None
        assert len(rig.failed) == 1

    scene(play)


def test_an_unknown_broker_is_a_failed_dial_with_backoff() -> None:  # faults: B13
    async def play(rig: PoolRig) -> None:
        def dial_again(node_id: int, error: object) -> None:
            rig.failed.append((node_id, error))  # type: ignore[arg-type]
            rig.pool.dial(node_id, PRODUCE)

        rig.pool._failed = dial_again  # the pipeline does so as long as it has work there
        rig.pool.dial(77, PRODUCE)
        await asyncio.sleep(60)
        assert rig.dials == []
        assert 50 < len(rig.failed) < 80
        rig.pool.know([node(77)])
        await asyncio.sleep(1.3)
        assert rig.pool.get(77, PRODUCE) is not None

    scene(play)


def test_a_bug_in_a_dial_is_told_and_no_caller_hangs() -> None:  # faults: L15
    async def scenario() -> None:
        rig = PoolRig(1)
        rig.refuse = lambda where: ZeroDivisionError("canary")
        with pytest.raises(ConnectionLostError, match="ZeroDivisionError") as raised:
            await rig.connect(1)
        assert "canary" not in str(raised.value)  # of an error that is not ours nothing is repeated (faults: S18)
        await asyncio.sleep(0.01)
        assert isinstance(rig.crashes[0], ZeroDivisionError)
        await rig.end()

    run_virtual(scenario())


# ---------------------------------------------------------------------- pace


def gaps(rig: PoolRig, node_id: int) -> list[float]:
    times = [at for at, dialled, *_ in rig.dials if dialled == node_id]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_a_broker_that_refuses_is_dialled_with_backoff() -> None:  # faults: N16
    async def play(rig: PoolRig) -> None:
        rig.refuse = refused
        for _ in range(60_000):
            rig.pool.dial(1, PRODUCE)
            await asyncio.sleep(0.01)
        apart = gaps(rig, 1)
        assert 0.04 <= apart[0] <= 0.07
        assert all(0.8 <= gap <= 1.25 for gap in apart[6:])
        assert 480 <= len(apart) <= 760

    scene(play)


def test_both_purposes_share_the_pace_of_a_broker() -> None:  # faults: N16
    async def play(rig: PoolRig) -> None:
        rig.refuse = refused
        for _ in range(3_000):
            rig.pool.dial(1, PRODUCE)
            rig.pool.dial(1, CONTROL)
            await asyncio.sleep(0.01)
        times = [at for at, *_ in rig.dials]
        assert all(later - earlier >= 0.99 for earlier, later in zip(times, times[5:], strict=False))

    scene(play)


def test_a_flapping_broker_is_dialled_at_most_five_times_a_second() -> None:  # faults: N15
    async def play(rig: PoolRig) -> None:
        for turn in range(600):  # up and down every 200 ms for two minutes
            is_up = turn % 2 == 0
            rig.refuse = (lambda where: None) if is_up else refused
            if not is_up:
                for connection in rig.opened:
                    connection.close(ConnectionLostError("reset"))
            for _ in range(20):
                rig.pool.dial(1, PRODUCE)
                await asyncio.sleep(0.01)
        times = [at for at, *_ in rig.dials]
        assert all(later - earlier >= 0.99 for earlier, later in zip(times, times[5:], strict=False))
        assert len(times) < 250
        assert rig.ready, "it was never found up"

    scene(play, 1)


def test_a_failing_broker_does_not_slow_down_the_others() -> None:
    async def play(rig: PoolRig) -> None:
        rig.refuse = lambda where: refused(where) if where.id == 1 else None
        for _ in range(20):
            rig.pool.dial(1, PRODUCE)
            await asyncio.sleep(0.5)
        began = rig.loop.time()
        await rig.connect(2)
        assert rig.loop.time() - began < 0.01

    scene(play)


def test_a_connection_lost_after_a_long_life_is_replaced_at_once() -> None:  # faults: N8
    async def play(rig: PoolRig) -> None:
        connection = await rig.connect(1)
        await asyncio.sleep(100)
        connection.close(ConnectionLostError("reset"))
        began = rig.loop.time()
        assert await rig.connect(1) is not connection
        assert rig.loop.time() - began < 0.07

    scene(play)


def test_refused_credentials_are_tried_ever_more_rarely() -> None:  # faults: S8
    async def play(rig: PoolRig) -> None:
        rig.refuse = lambda where: AuthenticationError("wrong password")
        for _ in range(3_000):
            for node_id in (1, 2, 3):
                rig.pool.dial(node_id, PRODUCE)
                rig.pool.dial(node_id, CONTROL)
            await asyncio.sleep(0.01)
        for node_id in (1, 2, 3):
            both, *apart = gaps(rig, node_id)
            assert both == 0  # for both purposes, before anything was known
            assert min(apart) >= 0.99
            assert 4 <= len(apart) <= 6
        rig.refuse = lambda where: None
        began = rig.loop.time()
        for node_id in (1, 2, 3):
            await rig.connect(node_id)
        assert rig.loop.time() - began < 12.1  # the longest pause, 10 s, with its jitter

    scene(play)


def test_a_broker_that_is_refused_does_not_hold_up_the_others() -> None:  # faults: S22
    async def play(rig: PoolRig) -> None:
        rig.refuse = lambda where: AuthenticationError("a wrong signature") if where.id == 1 else None
        for node_id in (1, 2, 3):
            rig.pool.dial(node_id, PRODUCE)
            rig.pool.dial(node_id, CONTROL)
        await asyncio.sleep(0.01)
        assert {node_id for node_id, _ in rig.ready} == {2, 3}
        for _ in range(10):
            rig.pool.dial(1, PRODUCE)
            await asyncio.sleep(0.5)
            for connection in rig.opened:
                connection.close(ConnectionLostError("reset"))
            rig.opened.clear()
            began = rig.loop.time()
            await rig.connect(2)
            await rig.connect(3, CONTROL)
            assert rig.loop.time() - began < 1.3  # the backoff of what was lost, and no more

    scene(play)


def silent(where: BrokerNode) -> ConnectionLostError | None:
    return refused(where) if where.id != HONEST else None


HONEST = 10_000


def test_so_many_dials_are_under_way_at_once_and_the_others_follow_in_order() -> None:  # faults: H16
    async def play(rig: PoolRig) -> None:
        rig.slow = dict.fromkeys(range(500), 10.0)
        for node_id in range(500):
            rig.pool.dial(node_id, PRODUCE)
        for _ in range(20):
            await asyncio.sleep(5.0)
            assert sum(rig.dialling.values()) <= DIALS_AT_ONCE
        assert [dialled[1] for dialled in rig.dials] == list(range(500))
        assert len(rig.ready) == 500

    scene(play, *range(500))


def test_a_broker_that_has_not_failed_is_dialled_before_those_that_have() -> None:  # faults: H16
    async def play(rig: PoolRig) -> None:
        rig.refuse = silent
        liars = range(DIALS_AT_ONCE * 4)
        rig.slow = dict.fromkeys(liars, 10.0)
        for _ in range(3):
            for node_id in liars:
                rig.pool.dial(node_id, PRODUCE)
            await asyncio.sleep(50.0)
        for node_id in liars:
            rig.pool.dial(node_id, PRODUCE)
        await asyncio.sleep(5.0)
        assert sum(rig.dialling.values()) == DIALS_AT_ONCE
        rig.pool.dial(HONEST, PRODUCE)
        rig.pool.dial(HONEST, CONTROL)  # a changed address waits for nothing
        await asyncio.sleep(1.0)
        assert rig.pool.get(HONEST, CONTROL) is not None
        await asyncio.sleep(9.0)  # those that are under way end
        assert [node_id for node_id, _ in rig.ready] == [HONEST]

    scene(play, *range(DIALS_AT_ONCE * 4), HONEST)


def test_a_dial_that_is_stopped_frees_its_place() -> None:  # faults: B13, H16
    async def play(rig: PoolRig) -> None:
        rig.slow = dict.fromkeys(range(DIALS_AT_ONCE), 1e6)
        for node_id in [*range(DIALS_AT_ONCE), HONEST]:
            rig.pool.dial(node_id, PRODUCE)
        await asyncio.sleep(100.0)
        assert rig.ready == []
        rig.pool.know([node(HONEST)])
        await asyncio.sleep(1.0)
        assert [node_id for node_id, _ in rig.ready] == [HONEST]

    scene(play, *range(DIALS_AT_ONCE), HONEST)


def test_the_setup_timeout_grows_with_each_failure() -> None:  # faults: B16
    async def play(rig: PoolRig) -> None:
        rig.refuse = refused
        for _ in range(4):
            with pytest.raises(ConnectionLostError):
                await rig.connect(1)
        timeouts = [timeout_s for *_, timeout_s in rig.dials]
        for timeout_s, plain_s in zip(timeouts, (10, 20, 30, 30), strict=True):
            assert 0.8 * plain_s <= timeout_s <= 1.2 * plain_s

    scene(play)
