"""Narrow worlds of what waits, of what is told, and of a producer's life."""

from __future__ import annotations

from .narrow import Narrow


def full(world: Narrow) -> None:
    """Use a small buffer, many partitions and a long linger, without faults: sends, bulks, perhaps a flush, a close."""
    buffer = world.pick(3_000, 10_000, 20_000)
    partitions = world.pick(8, 20)
    world.options(
        buffer_memory=buffer,
        max_request_size=buffer,
        batch_size=min(16_000, buffer),
        linger_ms=world.pick(5_000, 20_000),
        delivery_timeout_ms=60_000,
        max_block_ms=60_000,
        max_waiting_bytes=10_000_000,
    )
    world.topic(partitions)
    world.start()
    world.do("partitions_for", topic="a", timeout=5.0)
    world.wait(0.3)
    what = world.pick("spread", "spread", "flush", "later", "bulk", "bulk", "whole", "try", "close")
    spread = {"partition": 0, "spread": partitions}
    if what == "bulk":
        world.options(max_waiting_bytes=world.pick(0, 50, 500), linger_ms=0, batch_size=1_000)
    for _ in range(world.pick(1, 2)):
        if what == "spread":
            world.send(world.pick(100, 400, 500), world.pick(150, 300), **spread)
            world.wait(30.0)
        elif what == "flush":  # some of them wait for room when it is called
            world.send(world.pick(100, 400), world.pick(60, 150), **spread)
            world.wait(world.pick(0.0, 0.0005, 0.003))
            world.do("flush", hops=world.pick(0, 1))
            world.wait(30.0)
        elif what == "later":  # a flush, and records that come after it
            world.send(100, 2, partition=0)
            world.do("flush", hops=world.pick(0, 1))
            for _ in range(world.pick(20, 40)):
                world.wait(world.pick(0.0, 0.0005, 0.002))
                world.send(100, 1, partition=0, watch=world.pick("drop", "await"))
            world.wait(25.0)
        elif what == "bulk":
            world.many(world.pick(40, 150), world.pick(100, 400), world.pick("generator", "async", "list"))
            world.wait(world.pick(0.0, 0.001))
            world.many(world.pick(40, 150), world.pick(100, 400))
            world.wait(5.0)
        elif what == "whole":  # as large as the buffer, or nearly
            world.send(buffer - world.random.randrange(230), 1, watch=world.pick("drop", "await"))
            world.wait(30.0)
        elif what == "try":
            world.send(world.pick(100, 400), world.pick(60, 150), via="try_send", **spread)
            world.wait(30.0)
        else:
            world.send(world.pick(100, 400), world.pick(60, 150), **spread)
            world.wait(world.pick(0.0, 0.001))
    world.world.end |= {"settle_s": 0.0, "flush": False, "close_timeout": 30.0}


def served(world: Narrow) -> None:
    """Use serializers and partitioners before a small buffer: hanging, sending themselves, cancelled."""
    buffer = world.pick(3_000, 6_000)
    world.options(
        buffer_memory=buffer, max_request_size=buffer, batch_size=1_000, max_block_ms=world.pick(500, 3_000),
        delivery_timeout_ms=5_000, max_waiting_bytes=world.pick(500, 3_000),
    )  # fmt: skip
    world.topic(world.pick(1, 2))
    is_partitioner = world.chance(0.3)
    if is_partitioner:
        world.world.hooks["partitioner"] = {"reenter_every": world.pick(2, 5)}
        world.world.end["counts_charges"] = True
        world.options(batch_size=world.pick(200, 1_000))
    else:
        plan = {"mode": world.pick("async", "async", "mixed"), "seconds": world.pick(0.01, 0.1, 0.5)}
        if world.chance(0.3):
            plan["hang_every"] = world.pick(3, 7)
        world.world.hooks["serializer"] = plan
    world.start()
    is_bulk = not is_partitioner and world.chance(0.3)
    if is_bulk:  # nothing is delivered for a while: no more is taken than there is room for
        world.options(max_block_ms=60_000)
        world.world.hooks["serializer"] = {"mode": "async", "seconds": 0.01}
        world.fault("hold", api="Produce", seconds=4.0, before_serving=True)
        world.world.end["nothing_leaves_until"] = world.at + 0.9  # before requests are given up
        world.do("partitions_for", topic="a", timeout=2.0)
        world.wait(0.1)
        world.many(world.pick(150, 400), world.pick(100, 400))
        return
    if is_partitioner:
        world.do("partitions_for", topic="a", timeout=2.0)
        world.wait(0.1)
    for _ in range(world.pick(4, 8) if is_partitioner else world.pick(1, 2, 4)):
        what = world.pick("send", "send", "many", "recall")
        if is_partitioner:
            world.send(world.random.randrange(buffer // 20, buffer // 6), world.pick(20, 60))
        elif what == "many":
            world.many(world.pick(150, 400), world.pick(100, 400))
        else:
            world.send(world.pick(100, 400), world.pick(40, 80), watch=world.pick("drop", "await"))
            if what == "recall":
                world.do("recall", hops=world.pick(0, 1), count=30, skip=1)
        world.wait(world.pick(0.001, 0.3, 2.0))


def wrong_bounds(world: Narrow) -> None:
    """Give invalid timeouts to everything that takes one."""
    world.topic(1)
    if world.chance(0.7):
        world.world.hooks["serializer"] = {"mode": "async", "seconds": world.pick(0.0, 0.0, 0.01)}
    world.start()
    for _ in range(world.pick(3, 6)):
        what = world.pick("misuse", "misuse", "misuse", "ping")
        if what == "misuse":
            bad = world.pick("5", 10**400, float("nan"), float("nan"), -1, 0, True)
            world.do("misuse", topic="a", what="timeout", bad=bad)
        else:
            world.do("ping", timeout=world.pick(None, None, 0, 10.0))
        world.wait(world.pick(0.0, 0.01, 0.3))
        world.send(100, world.pick(1, 3), watch=world.pick("drop", "await"), timeout=world.pick(None, 1.0))
        world.wait(world.pick(0.0, 0.02))
        if world.chance(0.4):
            world.do("flush")
    if world.chance(0.6):
        world.wait(0.5)
        world.do("close", timeout=world.pick(None, "5", "5", 0))


def told(world: Narrow) -> None:
    """Use per-send timeouts before and after the stamp while nothing is answered; listeners differ, and all fail at last."""
    delivery_ms = world.pick(1_500, 3_000)
    world.options(request_timeout_ms=1_000, delivery_timeout_ms=delivery_ms)
    world.brokers(world.pick(1, 2))
    world.topic(world.pick(1, 2))
    if world.chance(0.3):
        world.options(buffer_memory=3_000, max_request_size=3_000, batch_size=1_000)
    if world.chance(0.2):  # what is parked fails in the call itself: the first record of a topic that is known by then
        world.world.hooks["partitioner"] = {"raise_every": 1}
        world.start()
        world.do("partitions_for", topic="a", timeout=2.0)
        world.wait(0.1)
        world.many(world.pick(1, 5), source=world.pick("generator", "async", "list"))
        world.wait(0.5)
        return
    world.start()
    world.send(100)
    world.wait(0.5)
    for _ in range(world.pick(1, 2, 3)):
        is_away = world.chance(0.8)
        if is_away:
            seconds = world.pick(0.8, delivery_ms / 1000 + 1.0)
            if world.chance(0.6):
                world.fault("hold", api="Produce", seconds=seconds, before_serving=world.chance(0.5))
            else:
                world.fault("refuse", node=1, seconds=seconds)
            world.wait(0.001)
        what = world.pick("send", "send", "send", "many", "many", "cancelled", "cancelled", "closed", "parked")
        timeout = world.pick(0.02, 0.2, 0.5)
        if what == "send":
            world.send(100, world.pick(1, 5), watch=world.pick("drop", "drop", "await", "callback"), timeout=timeout)
        elif what == "many":
            world.many(world.pick(5, 40), source=world.pick("generator", "async"), timeout=timeout)
        elif what == "cancelled":  # it had heard of timeouts, or had not
            world.many(
                world.pick(5, 40), source=world.pick("generator", "async"), pause=0.01, timeout=world.pick(None, 0.05, 0.2),
                after=world.pick(0.1, 0.3, 0.6),
            )  # fmt: skip
        elif what == "closed":
            world.many(40, source="async", pause=world.pick(0.01, 0.1), timeout=world.pick(None, 0.2))
            world.wait(world.pick(0.05, 0.3))
            world.do("close", timeout=world.pick(0, 0.2))
            break
        else:
            world.many(world.pick(5, 40), partitions=[0, 40, 0])
        world.wait(delivery_ms / 1000 + world.pick(0.5, 1.5))
    world.world.end |= {"settle_s": delivery_ms / 1000 + 1.0}


def sabotaged(world: Narrow) -> None:
    """Cancel the producer's tasks while something waits: a bulk for room, records for their serializers."""
    world.topic(world.pick(1, 2))
    what = world.pick("serializer", "room", "taking", "taking")
    if what == "serializer":
        world.world.hooks["serializer"] = {"mode": "async", "seconds": world.pick(0.01, 0.1, 0.5)}
    elif what == "room":
        buffer = world.pick(3_000, 10_000)
        world.options(buffer_memory=buffer, max_request_size=3_000, batch_size=1_000)
        if world.chance(0.8):
            world.fault("hold", api="Produce", seconds=world.pick(0.5, 2.0), before_serving=True, after=0.31)
    world.start()
    if what == "serializer":
        for _ in range(world.pick(1, 2)):
            world.send(100, world.pick(3, 12), watch=world.pick("drop", "await"))
            world.wait(world.pick(0.0, 0.001, 0.02))
            world.do("sabotage", hops=world.pick(0, 1, 2), which=world.pick("serialize", "serialize", "all"))
            world.wait(0.3)
    elif what == "taking":  # in the turns in which it takes, with room for all
        world.send(100)
        world.wait(0.3)
        world.many(1_300)
        world.do("sabotage", hops=world.pick(0, 1, 2, 3, 4, 5), which=world.pick("all", "metadata"))
        world.wait(1.0)
    else:
        world.wait(0.02)
        world.many(1_300)
        world.wait(world.pick(0.0, 0.001, 0.01, 0.05))
        world.do("sabotage", hops=world.pick(0, 1, 2), which=world.pick("all", "metadata"))
        world.wait(3.0)


def lived(world: Narrow) -> None:
    """Overlap starts and closes, with hooks that are slow to close and a loop that ends without close()."""
    world.topic(1)
    world.world.hooks["interceptor"] = {"close": world.pick("none", "slow", "slow", "raise")}
    what = world.pick("during", "during", "cancelled", "both", "twice", "twice", "ends", "again")
    if what in ("during", "cancelled", "both"):
        args = {"producer": 0, "wait": world.pick(True, False)}
        if what == "cancelled":
            args |= {"wait": True, "after": world.pick(0.0, 0.0005, 0.001, 0.002)}
        if what == "both":  # the start is cancelled while it closes its hooks, as the close wants
            args |= {"wait": True, "after": world.pick(0.005, 0.01, 0.05)}
            world.world.hooks["interceptor"] = {"close": "slow"}
        world.do("start", **args)
        world.wait(world.pick(0.0, 0.0005, 0.001, 0.003))
        if what in ("during", "both"):
            world.do("close", hops=world.pick(0, 1, 2, 3), timeout=world.pick(0, 1.0, 5.0))
        world.wait(1.0)
        if world.chance(0.4):
            world.do("start", producer=0)
            world.wait(0.3)
            world.send(100, 3)
        return
    world.start()
    world.send(100, world.pick(1, 5), watch=world.pick("drop", "await"))
    if what == "ends":
        world.world.end |= {"second_loop": True, "settle_s": world.pick(0.0, 0.5)}
        return
    if world.chance(0.5):
        world.fault("hold", api="Produce", seconds=world.pick(3.0, 8.0), before_serving=True)
        world.wait(0.01)
        world.send(100, 3)
    world.do("close", timeout=30.0, again=[world.pick(0.0, 0.01, 0.1, 0.2), world.pick(0, 0.2, 30.0)])
    world.wait(12.0)
    if what == "again":
        world.do("start", producer=0)
        world.wait(0.3)
        world.send(100, 3)
        world.wait(0.5)


def kept(world: Narrow) -> None:
    """Poll few records often, with many different timeouts and names of topics that do not exist."""
    world.topic(1)
    what = world.pick("polls", "timeouts", "tenants")
    if what == "tenants":
        world.options(metadata_max_idle_ms=5_000, max_block_ms=world.pick(500, 3_000))
    world.start()
    if what == "polls":
        world.fault("hold", api="Produce", seconds=0.9, before_serving=True)
        world.wait(0.001)
        for _ in range(3):
            world.send(100, world.pick(1, 2), watch="poll", after=world.pick(0.001, 0.02, 0.05))
            world.wait(world.pick(0.0, 0.3))
    elif what == "timeouts":
        for _ in range(world.pick(8, 12)):
            world.send(100, 40, timeout=60.0, timeout_step=0.0137)
            world.wait(0.1)
        world.world.end["settle_s"] = 2.0
    else:
        for _ in range(world.pick(1, 2)):
            world.do("tenants", count=15, first=world.random.randrange(1_000))
            world.wait(0.5)
        world.world.end["settle_s"] = 40.0
