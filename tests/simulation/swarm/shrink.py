"""From a world with a finding to the smallest one that still has it: less of everything, played again and again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from .play import play
from .world_values import Run, Step, World


def shrink(world: World, kind: str | None = None, *, tell: Callable[[str], None] = lambda _: None) -> Run:
    """Return the smallest world found that has a finding of this kind (by default that of the first finding)."""
    best = play(world)
    if not best.wrongs:
        return best
    wanted = kind or best.wrongs[0].kind
    if wanted not in best.kinds:
        return best
    tried = {best.world.to_json()}
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(best.world):
            if (text := smaller.to_json()) in tried:
                continue
            tried.add(text)
            run = _played(smaller)
            if run is not None and wanted in run.kinds:
                best, is_smaller = run, True
                tell(f"{len(tried)} tries: {len(best.world.operations)} operations, {len(best.world.faults)} faults")
                break
    best.wrongs.sort(key=lambda wrong: wrong.kind != wanted)
    return best


def _played(world: World) -> Run | None:
    """Play a world; None if it is impossible (options that do not fit, a fault of a topic that was left out)."""
    try:
        return play(world)
    except Exception:
        return None


def _smaller(world: World) -> Iterator[World]:
    """Yield worlds with a little less, the largest cuts first."""
    for name in ("faults", "operations"):
        steps: list[Step] = getattr(world, name)
        size = len(steps)
        while size >= 1:
            for first in range(0, len(steps), size):
                yield _with(world, **{name: steps[:first] + steps[first + size :]})
            size //= 2
    if world.producers > 1:
        yield _with(world, producers=1)
    yield from _plainer(world)
    for name in ("operations", "faults"):
        for at, step in enumerate(getattr(world, name)):
            for less in _less(step):
                changed = list(getattr(world, name))
                changed[at] = less
                yield _with(world, **{name: changed})


def _with(world: World, **changes: Any) -> World:
    other = copy.deepcopy(world)
    for name, value in changes.items():
        setattr(other, name, copy.deepcopy(value))
    return other


def _plainer(world: World) -> Iterator[World]:
    """Yield worlds without a hook, an option, or some weather."""
    for name in ("hooks", "options", "weather", "cluster", "end"):
        kept: dict[str, Any] = getattr(world, name)
        for key in kept:
            if key not in ("brokers", "auto_create_topics") and not (name == "hooks" and key == "on_delivery_error"):
                yield _with(world, **{name: {k: v for k, v in kept.items() if k != key}})
    for key, plan in world.hooks.items():
        for name in plan or ():
            if plan[name] is not None and name not in ("mode", "action", "every"):
                yield _with(world, hooks={**world.hooks, key: {k: v for k, v in plan.items() if k != name}})
    if world.cluster.get("brokers", 1) > 1:
        yield _with(world, cluster={**world.cluster, "brokers": 1})
    for at, topic in enumerate(world.topics):
        if topic.get("config"):
            yield _with(world, topics=[*world.topics[:at], {**topic, "config": {}}, *world.topics[at + 1 :]])
        if topic["partitions"] > 1:
            yield _with(world, topics=[*world.topics[:at], {**topic, "partitions": 1}, *world.topics[at + 1 :]])
        if len(world.topics) > 1:
            yield _with(world, topics=[*world.topics[:at], *world.topics[at + 1 :]])
    if world.shuffled:
        yield _with(world, shuffled=False)


def _less(step: Step) -> Iterator[Step]:
    """Yield the same step with less in it."""
    count = step.args.get("count")
    if isinstance(count, int) and count > 1:
        for fewer in dict.fromkeys((1, count // 4, count // 2, count - 1)):
            if 0 < fewer < count:
                yield Step(step.at, step.kind, {**step.args, "count": fewer}, step.hops, step.on, step.lag)
    if step.hops:
        yield Step(step.at, step.kind, step.args, 0, step.on, step.lag)
    for name in (
        "key",
        "partition",
        "spread",
        "timeout_step",
        "after",
        "partitions",
        "timeouts",
        "raise_at",
        "twice",
        "again",
        "action",
        "grown",
        "beside",
        "first_partition",
        "late_s",
    ):
        if step.args.get(name) is not None and not (step.kind in ("omit", "move") and name == "partition"):
            yield Step(
                step.at, step.kind, {k: v for k, v in step.args.items() if k != name}, step.hops, step.on, step.lag
            )
