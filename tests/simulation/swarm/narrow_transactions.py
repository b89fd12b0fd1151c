"""Worlds of transactions: what is sent between begin and end, ends of every kind, coordinators that fail."""

from __future__ import annotations

from .narrow import Narrow
from .transacts import IN

RETRIABLE = {
    "EndTxn": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS",
               "UNKNOWN_SERVER_ERROR"),
    "InitProducerId": ("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"),
    "AddPartitionsToTxn": ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS",
                           "UNKNOWN_TOPIC_OR_PARTITION"),
    "AddOffsetsToTxn": ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "CONCURRENT_TRANSACTIONS"),
    "TxnOffsetCommit": ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"),
    "FindCoordinator": ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"),
    "Produce": ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "CONCURRENT_TRANSACTIONS"),
}  # fmt: skip
REFUSING = ("INVALID_RECORD", "POLICY_VIOLATION", "TOPIC_AUTHORIZATION_FAILED")
NEVER_MS = 900_000


def transactional(world: Narrow) -> None:
    """Run some transactions one after the other, out of step with each other where two producers have ids."""
    _place(world)
    producers = world.world.producers
    for producer in range(producers):
        world.do("start", producer=producer)
        if world.chance(0.5):
            world.wait(0.3)
    world.wait(world.pick(0.0, 0.001, 0.3))
    for _ in range(world.pick(2, 4, 8)):
        _one(world, world.random.randrange(producers))
        world.wait(world.pick(0.0, 0.001, 0.02, 0.5))
    world.world.end |= {
        "settle_s": world.pick(0.0, 0.05, 2.0),
        "close_timeout": world.pick(0.0, 0.5, 30.0, 30.0, 30.0),
        # What nothing could end is aborted by its coordinator: until then it holds back the readers of other transactions.
        "after_s": NEVER_MS / 1000 + 20.0,
    }


def _place(world: Narrow) -> None:
    partitions = world.pick(1, 2, 3)
    world.brokers(world.pick(1, 2, 3))
    world.topic(partitions)
    world.topic(1, IN)
    world.world.producers = world.pick(1, 1, 1, 2)
    world.world.cluster |= {
        "transaction_version": world.pick(2, 2, 1, 0),
        "transaction_completion_ms": world.pick(0, 5, 50),
        "transaction_check_interval_ms": 500,
    }
    request_ms, linger_ms = world.pick(300, 1_000), world.pick(0, 0, 5, 50)
    world.options(
        transactional_id=world.pick("tx-{index}", "tx-{index}", "tx"),
        transaction_timeout_ms=world.pick(NEVER_MS, NEVER_MS, NEVER_MS, 3_000),
        request_timeout_ms=request_ms,
        linger_ms=linger_ms,
        delivery_timeout_ms=world.pick(request_ms + linger_ms, 5_000, 30_000),
        max_block_ms=world.pick(500, 5_000, 10_000),
        batch_size=world.pick(0, 300, 4_000),
        buffer_memory=world.pick(5_000, 2_000_000, 2_000_000),
        max_in_flight_requests_per_connection=world.pick(1, 2, 5),
        retry_backoff_ms=world.pick(1, 20),
    )
    if world.chance(0.2):
        world.options(max_waiting_bytes=world.pick(0, 500))


def _one(world: Narrow, producer: int) -> None:
    """Draw one transaction, and what goes wrong in it."""
    if world.chance(0.35):
        _fault(world)
    if world.chance(0.25):
        _block(world, producer)
    else:
        world.do("begin", producer=producer)
        world.wait(world.pick(0.0, 0.0, 0.001))
        for _ in range(world.pick(0, 1, 2, 4)):
            _inside(world, producer)
            world.wait(world.pick(0.0, 0.0, 0.0005, 0.01, 0.3))
        if world.chance(0.2):
            _fault(world)
        _end(world, producer)
    if world.chance(0.1):
        world.do(world.pick("restart", "restart", "close"), producer=producer, timeout=world.pick(0.0, 0.3, 5.0))
        world.do("start", producer=producer, hops=world.pick(0, 1, 5))
        world.wait(world.pick(0.0, 0.01, 0.5))


def _block(world: Narrow, producer: int) -> None:
    world.do(
        "block",
        producer=producer,
        topic="a",
        size=world.pick(10, 100, 400),
        count=world.pick(0, 1, 3, 20),
        watch=world.pick("drop", "await", "callback", "release"),
        lasts=world.pick(0.0, 0.0, 0.01, 0.5),
        raises=world.chance(0.2),
        after=world.pick(None, None, None, 0.0, 0.002, 0.05, 0.3),
        hops=world.pick(0, 1, 2),
    )
    world.wait(world.pick(0.0, 0.05, 0.5, 1.0))


def _inside(world: Narrow, producer: int) -> None:
    what = world.pick("send", "send", "send", "timeout", "many", "offsets", "flush", "recall", "cancel", "misplaced")
    hops = world.pick(0, 0, 1, 2)
    if what == "send":
        watch = world.pick("drop", "await", "callback", "release", "gather", "wait_for")
        after = world.pick(0.001, 0.05) if watch == "wait_for" else None
        via = world.pick("send", "send", "try_send")
        partition = world.pick(None, 0)
        world.send(
            world.pick(10, 100, 400), world.pick(1, 2, 5, 20), watch, hops, producer=producer, partition=partition,
            after=after, via=via,
        )  # fmt: skip
    elif what == "timeout":
        world.send(
            100,
            world.pick(1, 3),
            world.pick("drop", "await"),
            hops,
            producer=producer,
            timeout=world.pick(0.001, 0.1, 5.0),
        )
    elif what == "many":
        world.many(world.pick(1, 10, 40), 100, world.pick("generator", "async", "list"), hops, producer=producer)
    elif what == "offsets":
        offset = len(world.world.operations) + 1
        world.do("offsets", hops, producer=producer, offset=offset, after=world.pick(None, None, None, 0.0, 0.01))
    elif what == "flush":
        world.do("flush", hops, producer=producer)
    elif what == "recall":
        world.do("recall", hops, count=world.pick(1, 3), skip=1)
    elif what == "cancel":
        world.do("cancel", hops, count=world.pick(1, 3), skip=1)
    else:
        world.do(
            world.pick("begin", "end_elsewhere", "prepare", "abort"), hops, producer=producer, commit=world.chance(0.5)
        )


def _end(world: Narrow, producer: int) -> None:
    """End the transaction, now and then twice, or while a record is sent."""
    args = {
        "producer": producer,
        "timeout": world.pick(None, None, None, 0.0, 0.01, 0.5, 3.0),
        "after": world.pick(None, None, None, 0.0, 0.002, 0.3),
    }
    what = world.pick("commit", "commit", "commit", "abort", "prepare", "prepare")
    world.do(what, world.pick(0, 0, 1, 2), **args)
    if world.chance(0.2):
        world.send(100, world.pick(1, 3), "drop", world.pick(0, 1, 2, 5), producer=producer)
    world.wait(world.pick(0.0, 0.001, 0.02, 0.5, 2.0))
    if what == "prepare":
        for _ in range(world.pick(0, 1, 2)):
            elsewhere = world.pick(True, True, False)
            if elsewhere:
                timeout = world.pick(0.3, 5.0)
                world.do(
                    "end_elsewhere",
                    world.pick(0, 1),
                    commit=world.chance(0.7),
                    timeout=timeout,
                    back=world.pick(0, 0, 1),
                )
            else:
                world.do(
                    world.pick("commit", "abort", "close"),
                    world.pick(0, 1),
                    producer=producer,
                    timeout=world.pick(0.5, 5.0),
                )
            world.wait(world.pick(0.0, 0.001, 0.05, 1.0))
    if world.chance(0.3):
        world.do(world.pick("commit", "abort"), world.pick(0, 0, 1, 2), producer=producer)
        world.wait(world.pick(0.0, 0.01, 1.0))


def _fault(world: Narrow) -> None:
    name = world.pick("fail", "fail", "drop", "drop", "drop", "hold", "move", "kill", "refuse_record", "coordinator",
                      "coordinator", "load", "markers", "reset", "silence")  # fmt: skip
    api = world.pick("EndTxn", "EndTxn", "EndTxn", *RETRIABLE)
    key = world.world.options["transactional_id"].format(index=world.random.randrange(world.world.producers))
    nodes = world.world.cluster["brokers"]
    node = 1 + world.random.randrange(nodes)
    on = world.pick("", "", "", "EndTxn", "Produce")
    if name == "fail":
        world.fault("fail", on="", api=api, code=world.pick(*RETRIABLE[api]), times=world.pick(1, 1, 2, 4))
    elif name == "drop":
        world.fault("drop", api=api, after_append=world.chance(0.7), reset=world.chance(0.5))
    elif name == "hold":
        world.fault("hold", api=api, seconds=world.pick(0.05, 0.4, 4.0), before_serving=world.chance(0.5))
    elif name == "move":
        world.fault("move", on=on, topic="a", partition=0, by=1)
    elif name == "kill":
        world.fault("kill", on=on, node=node, seconds=world.pick(0.3, 3.0))
    elif name == "refuse_record":
        world.fault("fail", code=world.pick(*REFUSING), api="Produce", topic="a", partition=0)
    elif name == "coordinator":
        world.fault("move_coordinator", on=on, key=key, group=world.pick(None, None, f"group-{key}"))
    elif name == "load":
        world.fault("load_coordinator", key=key, seconds=world.pick(0.05, 1.0))
    elif name == "markers":
        world.fault("hold_markers", seconds=world.pick(0.05, 1.0, 3.0))
    elif name == "reset":
        world.fault("reset", on=on, node=None)
    else:
        world.fault("silence", node=node, seconds=world.pick(0.3, 2.0))
