"""The ledger with one rule switched off, each: what a rule is good for shows when it is gone. Named as in docs/ledger.md."""

from __future__ import annotations

from aiokprod.pipeline.ledger import Action, Entry, Ledger, Outcome
from aiokprod.pipeline.verdicts import Kind, judge


class AnOkBehindTheHeadIsIgnored(Ledger):
    """R1 off."""

    def _acknowledge(self, entry: Entry, base_offset: int | None) -> None:
        if entry is self._head():
            super()._acknowledge(entry, base_offset)
        else:
            self._bounce()


class ABumpStampsAmbiguousBatchesAnew(Ledger):
    """R2.1 off."""

    def _bump(self, *, fresh: bool) -> None:
        for entry in self._sent():
            entry.doubt = False
        super()._bump(fresh=fresh)


class AnOvertakenBatchIsSentAgain(Ledger):
    """R3.3 off."""

    def _is_overtaken(self, entry: Entry) -> bool:
        return False


class NumbersAreClosedUpOverAmbiguousBatches(Ledger):
    """R4.2 off."""

    def _close_up(self, base: int) -> None:
        if self.idempotent:
            for entry in self._sent():
                if not entry.acked:
                    entry.unstamp()
            self.next_sequence = base


class NoFirstAckGuard(Ledger):
    """R5 off."""

    def _span(self, now: float, now_ms: int) -> int:
        return self.window if self.idempotent else 1

    def _is_old(self, entry: Entry, now_ms: int) -> bool:
        return False


class TheGuardOutlivesTheRound(Ledger):
    """R5.1 off."""

    def _rewind(self, now: float, now_ms: int) -> None:
        proven = self._proven
        super()._rewind(now, now_ms)
        self._proven = proven


class TheGuardOutlivesASilence(Ledger):
    """R5.2 off."""

    def _is_idle(self, now: float) -> bool:
        return False


class OldTimestampsAreNotMinded(Ledger):
    """R5.3 and R5.4 off."""

    def _is_aged(self, now_ms: int) -> bool:
        return False

    def _is_old(self, entry: Entry, now_ms: int) -> bool:
        return False


class AnOldAmbiguousBatchIsSentAgain(Ledger):
    """R5.4 off, R5.3 on."""

    _decides = False

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        self._decides = True
        super()._decide(now, now_ms, moved)
        self._decides = False

    def _is_old(self, entry: Entry, now_ms: int) -> bool:
        return not self._decides and super()._is_old(entry, now_ms)


class NoChaser(Ledger):
    """R6 off: a rewind at the first bounce, whatever is on its way."""

    def _bounce(self) -> None:
        if self.flowing:
            self.flowing = False
            for entry in self._sent():
                entry.flying = False
            self._rewind(self._last_ack, int(self._last_ack))


class AnExpiredStampedBatchIsNotPersisted(Ledger):
    """R8.2 off."""

    def _expire_outcome(self, entry: Entry, why: str) -> None:
        if entry.flying:
            super()._expire_outcome(entry, why)
        else:
            self._settle(entry, Outcome.NOT, None, why)


class NotIdempotentWithFiveInFlight(Ledger):
    """R9 off."""

    def _span(self, now: float, now_ms: int) -> int:
        return super()._span(now, now_ms) if self.idempotent else 5


class ATransactionalLedgerBumpsByItself(Ledger):
    """R10 off."""

    def _abort(self) -> None:
        self._bump(fresh=False)


# ---------------------------------------------------------------------- rules of cost
def _is_fatal(entry: Entry) -> bool:
    return entry.is_open_ended and entry.code is not None and judge(entry.code).kind != Kind.RETRY


class NothingIsProved(Ledger):
    """R3.1 off."""

    def _is_proved(self, entry: Entry) -> bool:
        return False


class TheFirstErrorActs(Ledger):
    """R1.3 off: not the head's error, the first in the list that no retry mends."""

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
    """R2.3 off: its numbers are not trusted to fit, a new identity is asked for at once."""

    _eager = False

    def _give_up(self, entry: Entry, why: str) -> None:
        self._eager |= not self._is_proved(entry)
        super()._give_up(entry, why)

    def _expire_outcome(self, entry: Entry, why: str) -> None:
        if entry.is_stamped and why == "deadline" and (entry.flying or entry.doubt) and not self._is_proved(entry):
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
    """R4.2 off the other way."""

    def _close_up(self, base: int) -> None:
        self._bump(fresh=False)


class FortyFiveDecidesAtOnce(Ledger):
    """R7 off."""

    def _askable(self, now_ms: int) -> bool:
        return False


SAFETY = (
    AnOkBehindTheHeadIsIgnored,
    ABumpStampsAmbiguousBatchesAnew,
    AnOvertakenBatchIsSentAgain,
    NumbersAreClosedUpOverAmbiguousBatches,
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
