"""Per-send timeouts: due in order, forgotten when settled, and short of memory."""

from __future__ import annotations

import asyncio
import random

import pytest
from rig import run, run_in_virtual_time, started, until
from stage_rig import ManualLoop

from aiokprod import Persistence
from aiokprod.errors import AiokprodError, SendTimeoutError
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.sending.send_timeouts import KEPT, LOOK_EVERY_S, SLICE, SendTimeouts


def test_each_send_times_out_at_its_own_time_and_the_others_go_on() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            flying = producer.send("t", b"flying", timeout=0.5)
            await until(lambda: held.hits > 0)
            queued = [producer.send("unknown", b"v", timeout=timeout) for timeout in (0.05, 0.01, 0.05)]
            patient = producer.send("t", b"patient", timeout=20)
            with pytest.raises(SendTimeoutError) as late:
                await flying
            assert late.value.persistence is Persistence.POSSIBLY_PERSISTED
            for delivery in queued:
                with pytest.raises(SendTimeoutError) as early:
                    await delivery
                assert early.value.persistence is Persistence.NOT_PERSISTED
            assert not patient.done()
            cluster.release(held)
            assert (
                await patient
            ).offset == 2  # the one whose handle failed is in the log: that is what "possibly" means

    run_in_virtual_time(scenario())


def test_what_is_settled_is_not_kept_until_its_timeout() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            pipeline = producer._pipeline
            assert pipeline is not None
            timeouts = pipeline.parking._timeouts
            for round_ in range(20):
                await asyncio.gather(*(producer.send("t", b"v", timeout=60 + round_ % 2) for _ in range(500)))
            assert len(timeouts) <= 1_500, "as many as are under way, not as many as were sent"

    run(scenario())


# ---------------------------------------------------------------------- alone, on a loop whose time the test moves
class Bench:
    """Timeouts, and handles whose outcome the test decides."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.timeouts = SendTimeouts(self.loop, self.time_out)
        self.told: list[Delivery] = []
        self.pending: dict[Delivery, float] = {}

    def send(self, timeout_s: float) -> Delivery:
        record = ParkedRecord(self.loop, "t", self.loop.now, 0.0, 0, lambda record: None)
        delivery = record.delivery
        assert delivery is not None
        self.timeouts.set(self.loop.now, timeout_s, delivery)
        self.pending[delivery] = self.loop.now + timeout_s
        return delivery

    def settle(self, delivery: Delivery) -> None:
        holder, _ = delivery._position()
        assert isinstance(holder, ParkedRecord)
        holder.failure = AiokprodError("settled")
        del self.pending[delivery]

    def time_out(self, delivery: Delivery) -> None:
        self.told.append(delivery)
        self.settle(delivery)


def test_a_timeout_that_ctrl_c_has_stopped_is_told_in_the_next_turn() -> None:
    bench = Bench()
    calls = 0

    def stopped_once(delivery: Delivery) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        bench.time_out(delivery)

    bench.timeouts = SendTimeouts(bench.loop, stopped_once)
    sent = [bench.send(1.0) for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        bench.loop.advance(1.0)
    bench.loop.advance(0)
    assert bench.told == sent and len(bench.timeouts) == 0


def test_a_long_line_of_timeouts_is_told_in_slices_and_in_order() -> None:
    bench = Bench()
    sent = [bench.send(1.0) for _ in range(10 * SLICE)]
    sent += [bench.send(0.9) for _ in range(10)]
    bench.loop.now += 2.0
    slices = []
    handles = [handle for _, _, handle in bench.loop.timers if not handle.cancelled()]
    while handles:
        before = len(bench.told)
        for handle in handles:
            handle._run()
        slices.append(len(bench.told) - before)
        handles = [*bench.loop.soon]
        bench.loop.soon.clear()
    assert max(slices) == SLICE and len(slices) == 11
    assert bench.told == [*sent[-10:], *sent[:-10]]
    assert len(bench.timeouts) == 0


@pytest.mark.parametrize("seed", range(20))
def test_what_is_due_is_told_at_its_time_and_what_is_kept_is_a_small_multiple_of_what_is_pending(seed: int) -> None:
    draw = random.Random(seed)
    bench = Bench()
    timeouts_s = draw.choice([[5.0], [1.0, 5.0, 60.0], []])
    most_pending = 0
    for _ in range(40):
        for _ in range(draw.randrange(200)):
            bench.send(draw.choice(timeouts_s) if timeouts_s else 60 * draw.random())
        most_pending = max(most_pending, len(bench.pending))
        assert len(bench.timeouts) <= 3 * most_pending + KEPT
        for delivery in draw.sample(list(bench.pending), len(bench.pending) * draw.randrange(5) // 4):
            bench.settle(delivery)
        due = {delivery for delivery, at in bench.pending.items() if at <= bench.loop.now + 0.5}
        bench.told.clear()
        bench.loop.advance(0.5)
        assert set(bench.told) == due and len(bench.told) == len(due)
    bench.told.clear()
    left = sorted(bench.pending, key=lambda delivery: bench.pending[delivery])
    while bench.loop.armed:
        bench.loop.advance(max(0.0, bench.loop.armed[0] - bench.loop.now))
    assert bench.told == left
    assert len(bench.timeouts) == 0


def test_settled_deliveries_are_let_go_though_no_other_send_comes() -> None:
    bench = Bench()
    sent = [bench.send(3_600 + number / 7) for number in range(5_000)]
    for delivery in sent[:-10]:
        bench.settle(delivery)
    for _ in range(20):
        bench.loop.advance(LOOK_EVERY_S)
    assert len(bench.timeouts) <= KEPT
    assert len(bench.loop.armed) == 1, "one timer, and it is that of what is due first"
    bench.loop.advance(4_600)
    assert bench.told == sent[-10:]


def test_a_timer_is_armed_once_and_not_for_each_send() -> None:
    bench = Bench()
    for number in range(3 * KEPT):
        bench.send(60.0 - number / 1_000 if number < 10 else 60.0)
    assert len(bench.loop.timers) == 11, "ten that are due before all others, and one that looks on"


def test_nothing_rings_after_a_stop() -> None:
    bench = Bench()
    for _ in range(2 * KEPT):
        bench.send(1.0)
    bench.timeouts.stop()
    bench.loop.advance(5.0)
    assert bench.told == [] and len(bench.timeouts) == 0 and bench.loop.armed == []
