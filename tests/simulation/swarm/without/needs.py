"""The needs of a defect: worlds that cannot show it are counted and not played."""

from __future__ import annotations

from collections.abc import Callable

from ..world_values import World

OVERHEAD_BYTES = 120  # charged beside a record's own; the library is not imported here, as it is to be changed
Need = Callable[[World], bool]


def anything(world: World) -> bool:
    """Accept any world."""
    return True


def fills_the_buffer(world: World) -> bool:
    """Return whether all that the world sends exceeds the buffer."""
    limit = world.options["buffer_memory"]
    bytes_sent = 0
    for step in world.operations:
        size = step.args.get("size")
        if size is not None:
            bytes_sent += (size + OVERHEAD_BYTES) * step.args.get("count", 1)
        if bytes_sent > limit:
            return True
    return False


def has(*kinds: str) -> Need:
    """Return the need of one of these operations."""
    return lambda world: any(step.kind in kinds for step in world.operations)


def has_bad_records(world: World) -> bool:
    """Return whether a record goes to a missing partition, or a partitioner raises or strays."""
    there = {topic["name"]: topic["partitions"] for topic in world.topics}
    for step in world.operations:
        places = [step.args.get("partition"), step.args.get("first_partition"), *(step.args.get("partitions") or ())]
        if any(isinstance(place, int) and place >= there.get(str(step.args.get("topic")), 0) for place in places):
            return True
    return has_hook("partitioner", "raise_every", "stray_every")(world)


def has_hook(name: str, *plans: str) -> Need:
    """Return the need of this hook, with one of these plans if any are named."""

    def need(world: World) -> bool:
        plan = world.hooks.get(name)
        return plan is not None and (not plans or any(plan.get(each) for each in plans))

    return need


def has_argument(name: str) -> Need:
    """Return the need of an operation with this argument."""
    return lambda world: any(step.args.get(name) is not None for step in world.operations)


def has_value(name: str, value: object) -> Need:
    """Return the need of an operation, or a fault, with this argument."""
    return lambda world: any(step.args.get(name) == value for step in (*world.operations, *world.faults))


def has_option(name: str, *values: object) -> Need:
    """Return the need of this option, with one of these values if any are named."""
    return lambda world: name in world.options and (not values or world.options[name] in values)


def has_brokers(*versions: str) -> Need:
    """Return the need of brokers of one of these versions."""
    return lambda world: world.cluster.get("kafka_version") in versions


def lingers(world: World) -> bool:
    """Return whether the linger exceeds the judges' patience."""
    return bool(world.options["linger_ms"] >= 3_000)


def has_fault(*kinds: str) -> Need:
    """Return the need of one of these faults."""
    return lambda world: any(step.kind in kinds for step in world.faults)


def expires_soon(world: World) -> bool:
    """Return whether records expire during an outage."""
    return bool(world.faults) and bool(world.options["delivery_timeout_ms"] <= 35_000)


def has_faults(world: World) -> bool:
    """Return whether the cluster has any fault."""
    return bool(world.faults)


def ends(name: str) -> Need:
    """Return the need of a world that ends in this way."""
    return lambda world: bool(world.end.get(name))


def both(*needs: Need) -> Need:
    """Return the need of all of these."""
    return lambda world: all(need(world) for need in needs)
