"""Ledgers with one rule switched off, which show what the rule is for. Rules are named as in docs/ledger.md."""

from __future__ import annotations

import math
from typing import Any

from aiokprod.pipeline.partition.ledger import Action, Entry, Ledger, Outcome, Reason, State
from aiokprod.pipeline.partition.verdicts import Kind, judge


class AnOkBehindTheHeadIsIgnored(Ledger):
    """A ledger with R1 off."""

    def _acknowledge(self, entry: Entry, base_offset: int | None) -> None:
        if entry is self._head():
            super()._acknowledge(entry, base_offset)
        else:
            self._bounce()


class ABumpStampsAmbiguousBatchesAgain(Ledger):
    """A ledger with R2.1 off."""

    def _bump(self, *, fresh: bool) -> None:
        for entry in self._sent():
            entry.is_ambiguous = False
        super()._bump(fresh=fresh)


class AnOvertakenBatchIsSentAgain(Ledger):
    """A ledger with R3.3 off."""

    def _is_overtaken(self, entry: Entry) -> bool:
        return False


class NumbersAreClosedUpOverAmbiguousBatches(Ledger):
    """A ledger with R4.2 off."""

    def _close_up(self, base: int) -> None:
        if self.idempotent:
            for entry in self._sent():
                if entry.state is not State.ACKED:
                    entry.unstamp()
            self.next_sequence = base


class ARestHasTheNumbersOfTheWhole(Ledger):
    """A ledger with R4.4 off: the numbers of the first part are used twice."""

    def _split(self, entry: Entry, count: int) -> Entry:
        first = super()._split(entry, count)
        rest = next(each for each in self.entries if each.batch is entry.batch and each is not first)
        rest.first_sequence = entry.first_sequence
        return first


class NoFirstAckGuard(Ledger):
    """A ledger with R5 off."""

    def _span(self, now: float, now_ms: int) -> int:
        return self.window if self.idempotent else 1

    def _is_old(self, entry: Entry, now_ms: int) -> bool:
        return False


class TheGuardOutlivesTheRound(Ledger):
    """A ledger with R5.1 off."""

    def _rewind(self, now: float, now_ms: int) -> None:
        proven = self.guard.is_proven
        super()._rewind(now, now_ms)
        self.guard.is_proven = proven


class TheGuardOutlivesASilence(Ledger):
    """A ledger with R5.2 off."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"idle_s": math.inf})


class OldTimestampsAreNotMinded(Ledger):
    """A ledger with R5.3 and R5.4 off."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"age_ms": 2**62})


class AnOldAmbiguousBatchIsSentAgain(Ledger):
    """A ledger with R5.4 off, R5.3 on."""

    _decides = False

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        self._decides = True
        super()._decide(now, now_ms, moved)
        self._decides = False

    def _is_old(self, entry: Entry, now_ms: int) -> bool:
        return not self._decides and super()._is_old(entry, now_ms)


class NoChaser(Ledger):
    """A ledger with R6 off: it rewinds at the first bounce, whatever is in flight."""

    def _bounce(self) -> None:
        if self.flowing:
            self.flowing = False
            for entry in self._sent():
                entry.land(entry.attempt)
            self._rewind(self.guard._last_ack, int(self.guard._last_ack))


class AnExpiredStampedBatchIsNotPersisted(Ledger):
    """A ledger with R8.2 off."""

    def _expire_outcome(self, entry: Entry, why: Reason) -> None:
        if entry.is_flying:
            super()._expire_outcome(entry, why)
        else:
            self._settle(entry, Outcome.NOT, None, why)


class NotIdempotentWithFiveInFlight(Ledger):
    """A ledger with R9 off."""

    def _span(self, now: float, now_ms: int) -> int:
        return super()._span(now, now_ms) if self.idempotent else 5


class ATransactionalLedgerBumpsByItself(Ledger):
    """A ledger with R10 off."""

    def _abort(self, head: Entry | None = None) -> None:
        self._bump(fresh=False)


# ---------------------------------------------------------------------- rules of cost
def _is_fatal(entry: Entry) -> bool:
    return entry.is_open_ended and entry.code is not None and judge(entry.code).kind != Kind.RETRY


class NothingIsProved(Ledger):
    """A ledger with R3.1 off."""

    def _is_proved(self, entry: Entry) -> bool:
        return False


class TheFirstErrorActs(Ledger):
    """A ledger with R1.3 off: the first error that no retry can mend decides, not the head's."""

    _decides = False

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        self._decides = True
        super()._decide(now, now_ms, moved)
        self._decides = False

    def _head(self) -> Entry | None:
        head = super()._head()
        if not self._decides:
            return head
        return next((entry for entry in self._sent() if _is_fatal(entry)), head)


class APossiblyPersistedBatchBumps(Ledger):
    """A ledger with R2.3 off: it does not trust the numbers to fit, and asks for a new identity at once."""

    _eager = False

    def _give_up(self, entry: Entry, why: Reason) -> None:
        self._eager |= not self._is_proved(entry)
        super()._give_up(entry, why)

    def _expire_outcome(self, entry: Entry, why: Reason) -> None:
        if (
            entry.is_stamped
            and why is Reason.DEADLINE
            and (entry.is_flying or entry.is_ambiguous)
            and not self._is_proved(entry)
        ):
            self._eager = True
            self._bounce()
        super()._expire_outcome(entry, why)

    def _rewind(self, now: float, now_ms: int) -> None:
        super()._rewind(now, now_ms)
        if self._eager:
            self._eager = False
            if self.identity is not None:
                self._bump(fresh=False)


class ARejectionAlwaysBumps(Ledger):
    """A ledger with R4.2 off the other way."""

    def _close_up(self, base: int) -> None:
        self._bump(fresh=False)


class FortyFiveDecidesAtOnce(Ledger):
    """A ledger with R7 off."""

    def _askable(self, now_ms: int) -> bool:
        return False


SAFETY = (
    AnOkBehindTheHeadIsIgnored,
    ABumpStampsAmbiguousBatchesAgain,
    AnOvertakenBatchIsSentAgain,
    NumbersAreClosedUpOverAmbiguousBatches,
    ARestHasTheNumbersOfTheWhole,
    NoFirstAckGuard,
    TheGuardOutlivesTheRound,
    TheGuardOutlivesASilence,
    OldTimestampsAreNotMinded,
    AnOldAmbiguousBatchIsSentAgain,
    NoChaser,
    AnExpiredStampedBatchIsNotPersisted,
    NotIdempotentWithFiveInFlight,
    ATransactionalLedgerBumpsByItself,
)
COST = (NothingIsProved, TheFirstErrorActs, APossiblyPersistedBatchBumps, ARejectionAlwaysBumps, FortyFiveDecidesAtOnce)
__all__ = ["COST", "SAFETY", "Action"]
