"""What a world must have to show a defect: worlds that cannot show it are counted and not played."""

from __future__ import annotations

from collections.abc import Callable

from ..world_values import World

OVERHEAD_BYTES = 120  # charged beside a record's own; the library is not imported here, as it is to be changed
Need = Callable[[World], bool]


def anything(world: World) -> bool:
    """Any world may show it."""
    return True


def fills_the_buffer(world: World) -> bool:
    """All that it sends at once would not find room."""
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
    """One of these operations."""
    return lambda world: any(step.kind in kinds for step in world.operations)


def has_bad_records(world: World) -> bool:
    """A partition that does not exist, or a partitioner that raises or strays."""
    there = {topic["name"]: topic["partitions"] for topic in world.topics}
    for step in world.operations:
        places = [step.args.get("partition"), step.args.get("first_partition"), *(step.args.get("partitions") or ())]
        if any(isinstance(place, int) and place >= there.get(str(step.args.get("topic")), 0) for place in places):
            return True
    return has_hook("partitioner", "raise_every", "stray_every")(world)


def has_hook(name: str, *plans: str) -> Need:
    """This hook, and one of these plans in it, if any are named."""

    def need(world: World) -> bool:
        plan = world.hooks.get(name)
        return plan is not None and (not plans or any(plan.get(each) for each in plans))

    return need


def has_argument(name: str) -> Need:
    """An operation with this argument."""
    return lambda world: any(step.args.get(name) is not None for step in world.operations)


def has_value(name: str, value: object) -> Need:
    """An operation, or a fault, with this argument."""
    return lambda world: any(step.args.get(name) == value for step in (*world.operations, *world.faults))


def has_option(name: str, *values: object) -> Need:
    """This option, with one of these values, if any are named."""
    return lambda world: name in world.options and (not values or world.options[name] in values)


def has_brokers(*versions: str) -> Need:
    """Of one of these versions."""
    return lambda world: world.cluster.get("kafka_version") in versions


def lingers(world: World) -> bool:
    """Longer than the judges are patient."""
    return bool(world.options["linger_ms"] >= 3_000)


def has_fault(*kinds: str) -> Need:
    """One of these faults."""
    return lambda world: any(step.kind in kinds for step in world.faults)


def expires_soon(world: World) -> bool:
    """Records fall due while something is away."""
    return bool(world.faults) and bool(world.options["delivery_timeout_ms"] <= 35_000)


def has_faults(world: World) -> bool:
    """Something goes wrong with the cluster."""
    return bool(world.faults)


def ends(name: str) -> Need:
    """It ends in this way."""
    return lambda world: bool(world.end.get(name))


def both(*needs: Need) -> Need:
    """All of them."""
    return lambda world: all(need(world) for need in needs)
