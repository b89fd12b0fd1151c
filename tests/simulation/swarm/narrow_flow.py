"""Narrow worlds of the way of a record: expiry with a full buffer, leaders that move, topics that are new, threads."""

from __future__ import annotations

from .narrow import Narrow


def expiry(world: Narrow) -> None:
    """Fill the buffer while a leader is away until some records expire and others of its partition wait for room."""
    request_ms = world.pick(500, 1_000)
    delivery_s = 1.0
    world.options(
        request_timeout_ms=request_ms,
        delivery_timeout_ms=1_000,
        batch_size=world.pick(1_000, 1_000, 3_000),
        buffer_memory=3_000,
        max_request_size=3_000,
        max_block_ms=60_000,
    )
    world.brokers(world.pick(1, 1, 2))
    world.topic(2)
    if world.chance(0.5):
        world.lockstep()
    world.start()
    world.do("partitions_for", topic="a", timeout=5.0)
    world.wait(0.5)
    for _ in range(world.pick(2, 4, 6)):
        first, other = world.pick((1, 0), (0, 1))
        away_s = delivery_s + world.pick(0.0, 0.0005, 0.002, 0.003, 0.3, 1.0)
        if world.chance(0.5):
            world.fault("hold", api="ApiVersions", seconds=round(away_s, 6), before_serving=world.chance(0.5))
            world.fault("close_connections", node=None, abort=True)
        else:
            world.fault("refuse", node=1, seconds=round(away_s, 6))
        world.wait(0.01)
        if world.chance(0.6):
            world.send(world.pick(700, 800), partition=first)  # a batch of its own
        world.send(world.pick(80, 100), world.pick(1, 2, 2), partition=first, watch=world.pick("drop", "await"))
        world.wait(world.between(0.2, 0.8))
        if world.chance(0.6):
            world.send(100, partition=first)  # in the same batch, and due later
        world.send(world.pick(900, 1_000), world.pick(1, 1, 2, 3), partition=other)
        world.send(world.pick(100, 600, 700), world.pick(1, 1, 2), partition=first)  # waits for room
        world.wait(2.5)
        if world.chance(0.5):
            world.send(50, 3, partition=first)
            world.wait(0.5)
    world.world.end |= {"settle_s": 3.0, "flush": True}


def reset_turn(world: Narrow) -> None:
    """Kill a leader with batches in flight; the next leader is learnt in the turn before the loss is reported."""
    latency_s = world.lockstep()
    world.options(
        metadata_max_age_ms=200,
        request_timeout_ms=5_000,
        delivery_timeout_ms=20_000,
        max_in_flight_requests_per_connection=world.pick(1, 5),
    )
    world.brokers(world.pick(2, 3, 3))
    world.topic(world.pick(1, 2))
    world.start()
    world.send(100, watch="await", partition=0)
    world.wait(0.3)
    for _ in range(world.pick(4, 8, 12)):
        world.fault(
            "move_and_reset",
            on="Metadata",
            topic="a",
            partition=0,
            by=1,
            lag=round(latency_s * world.pick(1.0, 1.0, 1.0, 0.5, 1.5), 6),
            turns=world.random.randrange(6),
            late_s=world.pick(0.5, 1.0),
        )
        world.wait(0.0001)
        for _ in range(3):
            world.send(100, world.pick(1, 5), partition=0)
            world.wait(0.05)
        world.wait(0.35)
        if world.chance(0.3):
            world.do("flush")
        world.wait(0.7)


def behind(world: Narrow) -> None:
    """Send to partitions that are unknown yet or do not exist: which records go first, and which fail?"""
    world.brokers(world.pick(1, 2))
    is_full = world.chance(0.3)
    if is_full:
        world.options(buffer_memory=10_000, max_request_size=10_000, batch_size=10_000, max_waiting_bytes=1_000_000)
    world.topic(1)
    world.start()
    if is_full:
        world.send(300, world.pick(40, 60), partition=0, first_partition=90)
        world.wait(2.0)
    else:
        world.send(100, partition=0)
        world.wait(0.5)
    count = 1
    for _ in range(world.pick(2, 3, 5)):
        what = world.pick("unseen", "unseen", "beside", "beside", "missing")
        if what == "unseen":
            world.fault("grow", topic="a", more=1, unseen=world.pick(2, 3, 4))
            for _ in range(world.pick(2, 4, 8)):
                world.wait(world.pick(0.0005, 0.003, 0.02, 0.03))
                world.send(100, world.pick(1, 2), partition=count)
            count += 1
        elif what == "beside":  # an answer about something else is on its way
            world.do("partitions_for", topic=f"elsewhere-{world.random.randrange(1_000)}", timeout=0.5)
            world.wait(world.pick(0.0, 0.0002, 0.0005, 0.001))
            world.send(100, partition=count, grown=True, hops=world.pick(0, 1, 2))
            count += 1
        else:
            world.send(100, 2, partition=count + 5)
        world.wait(world.pick(2.0, 5.0, 12.0))


def refused(world: Narrow) -> None:
    """Refuse a topic once; each call that needs it asks again long after, beside other topics."""
    world.options(max_block_ms=world.pick(500, 3_000), metadata_max_age_ms=300_000)
    world.brokers(world.pick(1, 2))
    world.topic(world.pick(1, 2))
    world.topic(1, "b")
    world.start()
    if world.chance(0.3):
        world.send(100, topic="b")
        world.wait(0.5)
    for _ in range(world.pick(1, 2)):
        world.fault("fail", api="Metadata", code="TOPIC_AUTHORIZATION_FAILED", topic="a", times=world.pick(1, 1, 2))
        world.wait(0.01)
        _asks(world)
        world.wait(world.pick(6.0, 8.0))
        what = world.pick("beside", "asks", "asks")
        if what == "beside":  # the answer about something else comes while the record waits
            world.do("partitions_for", topic=world.pick("b", "elsewhere"), timeout=1.0)
            world.wait(world.pick(0.0, 0.0002, 0.0005))
            world.send(100, world.pick(1, 3), watch=world.pick("drop", "await"))
        else:
            _asks(world)
        world.wait(4.0)


def _asks(world: Narrow) -> None:
    what = world.pick("many", "many", "columns", "partitions_for", "send")
    if what == "many":
        world.many(5)
    elif what == "columns":
        world.do("columns", topic="a", size=20, count=7)
    elif what == "partitions_for":
        world.do("partitions_for", topic="a", timeout=world.pick(None, 1.0))
    else:
        world.send(100, watch=world.pick("drop", "await"))


def remade(world: Narrow) -> None:
    """Recreate a topic on old brokers after many leader moves, so that leader epochs restart."""
    world.brokers(world.pick(3, 5), world.pick("2.1", "2.1", "2.8"))
    world.options(
        metadata_max_age_ms=world.pick(200, 500),
        delivery_timeout_ms=45_000,
        max_block_ms=60_000,
        request_timeout_ms=1_000,
    )
    partitions = world.pick(1, 2, 3)
    world.topic(partitions)
    world.start()
    world.send(100, partitions, partition=0, spread=partitions)
    for _ in range(world.pick(2, 4)):
        for partition in range(partitions):
            world.fault("move", topic="a", partition=partition, by=world.pick(1, 1, 2))
        world.wait(0.8)
        world.send(100, partitions, partition=0, spread=partitions)
    if world.chance(0.7):
        world.fault("delete", topic="a", seconds=world.pick(0.5, 1.0, 2.0), partitions=world.pick(None, None, 1, 4))
        world.wait(world.pick(0.3, 1.0))
    else:
        world.fault("recreate", topic="a", partitions=world.pick(None, 1, 4))
    world.wait(0.1)
    world.send(100, partitions, partition=0, spread=partitions)
    world.wait(world.pick(0.5, 3.0))
    world.send(100, 2 * partitions, partition=0, spread=partitions, watch=world.pick("drop", "await"))
    world.world.end |= {"settle_s": 0.0, "flush": True, "close_timeout": 300.0}


def moved(world: Narrow) -> None:
    """Move a leader to a busy broker while a task waits for a batch that lingers behind another partition's request."""
    world.options(
        linger_ms=20_000,
        delivery_timeout_ms=40_000,
        request_timeout_ms=5_000,
        metadata_max_age_ms=200,
        max_in_flight_requests_per_connection=world.pick(2, 5),
    )
    world.brokers(2)
    world.topic(4)
    world.start()
    for partition in range(4):
        world.send(100, watch="await", partition=partition)
    world.wait(2.0)
    for _ in range(world.pick(2, 3)):
        world.fault("hold", api="Produce", seconds=world.pick(1.0, 1.5), before_serving=True)
        world.wait(0.001)
        for partition in (1, 2, 3):
            world.send(100, watch="await", partition=partition)
        world.wait(world.pick(0.01, 0.05))
        world.send(100, world.pick(1, 2), watch="await", partition=0)
        world.wait(world.pick(0.001, 0.1))
        world.fault("move", topic="a", partition=0, by=1)
        world.wait(10.0)
    world.world.end["prompt_s"] = 8.0


def flushed(world: Narrow) -> None:
    """Flush a lingering batch whose leader is away; later records for the partition expire later."""
    world.options(linger_ms=3_000, request_timeout_ms=500, delivery_timeout_ms=3_500, max_block_ms=60_000)
    world.brokers(world.pick(1, 2))
    world.topic(1)
    world.start()
    world.send(100, watch="await", partition=0)
    world.do("flush")
    world.wait(1.0)
    for _ in range(world.pick(1, 2)):
        world.fault("refuse", node=1, seconds=8.0)
        world.fault("refuse", node=2 if world.world.cluster["brokers"] > 1 else 1, seconds=8.0)
        world.wait(0.01)
        world.send(100, world.pick(1, 3), partition=0)
        world.wait(world.pick(0.0, 0.1, 0.5))
        world.do("flush")
        for _ in range(world.pick(1, 2, 3)):
            world.wait(world.pick(0.7, 0.9))
            world.send(100, world.pick(1, 3), partition=0, watch=world.pick("drop", "await"))
        world.wait(12.0)
    world.world.end["flush_is_exact"] = True


def pressed(world: Narrow) -> None:
    """Send more than the loop compresses itself, and recall a record in the turns around the start of the thread."""
    world.options(
        compression_type=world.pick("gzip", "lz4", "zstd"),
        batch_size=world.pick(65_536, 200_000),
        delivery_timeout_ms=world.pick(10_000, 30_000),
    )
    world.brokers(world.pick(1, 2))
    world.topic(1)
    world.start()
    for _ in range(world.pick(4, 8, 12)):
        world.send(
            world.pick(1_000, 2_000),
            world.pick(40, 60, 80),
            watch=world.pick("drop", "await", "gather"),
            partition=0,
            recalled=[world.pick(0, 1, 1, 2, 2, 3), world.random.randrange(80)],
            timeout=0.001 if world.chance(0.1) else None,
        )
        world.wait(world.pick(0.001, 0.05, 0.3))


def unanswered(world: Narrow) -> None:
    """Send with acks=0: requests one behind the other, and connections that end."""
    world.options(acks=0, batch_size=world.pick(100, 300), buffer_memory=world.pick(20_000, 2_000_000))
    world.brokers(world.pick(1, 2))
    world.topic(world.pick(1, 2))
    world.start()
    for _ in range(world.pick(2, 3)):
        world.send(100, 300, partition=0, watch=world.pick("drop", "await"))
        if world.chance(0.3):
            world.fault("reset", node=None, after=world.between(0.0, 0.01))
        world.wait(world.pick(0.01, 1.0))
