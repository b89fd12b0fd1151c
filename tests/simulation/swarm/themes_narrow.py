"""Narrow themes: small dense worlds, each for one family of rare coincidences. Every fourth seed has one, and no other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from . import narrow_flow, narrow_life, narrow_transactions
from .narrow import Narrow
from .world_values import World

NARROW: dict[str, Callable[[Narrow], None]] = {
    "expiry": narrow_flow.expiry,
    "reset_turn": narrow_flow.reset_turn,
    "behind": narrow_flow.behind,
    "refused": narrow_flow.refused,
    "remade": narrow_flow.remade,
    "moved": narrow_flow.moved,
    "pressed": narrow_flow.pressed,
    "unanswered": narrow_flow.unanswered,
    "full": narrow_life.full,
    "served": narrow_life.served,
    "wrong_bounds": narrow_life.wrong_bounds,
    "told": narrow_life.told,
    "sabotaged": narrow_life.sabotaged,
    "lived": narrow_life.lived,
    "kept": narrow_life.kept,
    "flushed": narrow_flow.flushed,
}


def is_transactional(seed: int) -> bool:
    """Return whether the seed has a world of transactions, which `narrow_transactions.py` draws."""
    return seed % 20 == 18


def is_narrow(seed: int) -> bool:
    """Return whether the seed has a narrow theme; the others draw from the wide themes."""
    return seed % 4 == 3


def theme_of(seed: int) -> str:
    """Return the narrow theme of a seed; themes take turns, so that each has as many seeds."""
    return list(NARROW)[seed // 4 % len(NARROW)]


def draw_transactional(seed: int) -> World:
    """Draw the world of a seed with transactions."""
    random = Random(f"transactional {seed}")
    world = World(seed, shuffled=random.random() < 0.75)
    narrow_transactions.transactional(Narrow(random, world))
    return world


def draw_narrow(seed: int) -> World:
    """Draw the world of a narrow seed."""
    random = Random(f"narrow {seed}")
    world = World(seed, shuffled=random.random() < 0.75)
    NARROW[theme_of(seed)](Narrow(random, world))
    return world
