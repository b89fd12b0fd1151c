"""`Wait`: what holds a record or a partition up at the moment; and `ledger_wait`: the words for what its ledger waits for.

Computed when a program asks (`explain`), from state that the stages keep anyway. Read only: it may be asked from any thread,
and a view that is torn between two updates is at worst slightly out of date.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiokprod.pipeline.partition.ledger import Entry, Ledger
from aiokprod.pipeline.partition.ledger_entry import ACKED
from aiokprod.waiting import WaitsFor


class Wait:
    """Something that is waited for, since when, and until when at the latest."""

    __slots__ = ("broker", "since", "until", "waits_for", "why")

    def __init__(self, waits_for: WaitsFor, why: str, since: float, until: float = -1.0, broker: int = -1) -> None:
        self.waits_for = waits_for
        self.why = why
        self.since = since  # loop time, seconds
        self.until = until  # loop time, when it ends by itself; below 0: that is not known
        self.broker = broker  # -1: none

    def left_s(self, now: float) -> float | None:
        """Return the seconds until it ends by itself; None: that is not known."""
        return None if self.until < 0 else max(0.0, self.until - now)

    def __repr__(self) -> str:
        return f"<Wait {self.waits_for.name} {self.why}>"


def ledger_wait(held: WaitsFor, ledger: Ledger, chased_at: float, led_since: float, asked_at: float, last: str) -> Wait:
    """Return the words for what a ledger waits for before it gives out any batch: `Ledger.next` has decided it.

    Args:
        held: what `Ledger.next` has returned.
        ledger: of the partition.
        chased_at: when its last round ended with a chaser.
        led_since: when it got its leader, or lost it.
        asked_at: when it asked for its producer id.
        last: the last failure in the partition, in words, or nothing.
    """
    if held is WaitsFor.CHASER:  # what was sent before the failure is answered first (ledger: R6)
        return Wait(held, _joined("an attempt has failed", last), chased_at, broker=ledger.node)
    if held is WaitsFor.LEADER:
        return Wait(held, _joined("the partition has no leader", last), led_since)
    if held is WaitsFor.BACKOFF:
        return Wait(held, last, chased_at, ledger.not_before, ledger.node)
    if held is WaitsFor.OUTCOMES:
        return Wait(held, "many batches expire, or are purged, in several turns of the loop", chased_at)
    return Wait(held, _joined("the partition has no producer id", last), asked_at)


def _joined(text: str, last: str) -> str:
    return f"{text}; last: {last}" if last else text


def batches_ahead(entries: Iterable[Entry], entry: Entry) -> int:
    """Count the batches in front of this one that have no outcome yet."""
    ahead = 0
    for other in entries:
        if other is entry:
            break
        if other.state is not ACKED and not other.is_dead:
            ahead += 1
    return ahead
