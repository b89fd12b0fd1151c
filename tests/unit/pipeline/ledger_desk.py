"""One ledger on a table: a test says what happens to it, and the desk keeps what it answers.

Records are numbered from 0 in the order of sending; `told` is what their callers were told. Nothing happens by itself:
a chaser comes back, an identity is granted and time passes when the test says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ledger_states import OUTCOMES, complaints

from aiokprod.errors import AiokprodError
from aiokprod.pipeline.partition.batch import BatchOwner, ProducerBatch, Segment
from aiokprod.pipeline.partition.ledger import (
    Abort,
    Action,
    Chase,
    Entry,
    Ledger,
    NeedIdentity,
    Outcome,
    Settle,
    WantMetadata,
)

IDENTITY = (7, 0)
TOPIC_ID = (1).to_bytes(16, "big")
OTHER_TOPIC_ID = (2).to_bytes(16, "big")
DELIVERY_TIMEOUT_S = 120.0
NOW_MS = 1_700_000_000_000
RETRY_S = 0.1


class Desk:
    """A ledger, the clock, and what came out."""

    def __init__(
        self,
        *,
        window: int = 5,
        identity: tuple[int, int] | None = IDENTITY,
        idempotent: bool = True,
        transactional: bool = False,
        next_sequence: int = 0,
        topic_id: bytes = TOPIC_ID,
        retries: int = 2**31 - 1,
    ) -> None:
        self.ledger = Ledger(
            node=1,
            leader_epoch=3,
            topic_id=topic_id,
            identity=identity,
            idempotent=idempotent,
            transactional=transactional,
            window=window,
            retry_delay=lambda attempt: RETRY_S * attempt,
            next_sequence=next_sequence,
            retries=retries,
        )
        self.now = 0.0
        self.told: dict[int, tuple[Outcome, int | None]] = {}
        self.settled: list[Settle] = []
        self.needs: list[NeedIdentity] = []
        self.chases: list[Chase] = []
        self.aborts = 0
        self.wants: list[int] = []
        self._numbers = itertools.count()
        self._owner = BatchOwner()

    @property
    def now_ms(self) -> int:
        return NOW_MS + int(self.now * 1000)

    # ------------------------------------------------------------------ what happens
    def send(self, count: int = 1, *, timestamp_ms: int | None = None, waited_s: float = 0.0) -> Entry:
        """Seal one full batch of so many records, which have waited for so long."""
        stamp = self.now_ms if timestamp_ms is None else timestamp_ms
        batch = ProducerBatch(self._owner, self.now - waited_s, DELIVERY_TIMEOUT_S, 0, 0, stamp)
        entry = self.ledger.open(batch)
        for _ in range(count):
            batch.append(b"%d" % next(self._numbers), None, None, stamp, 10, self.now - waited_s)
        self.ledger.seal()
        return entry

    def send_aged(self, *waited_s: float) -> Entry:
        """Seal one batch of records that have waited for so long, the oldest first."""
        batch = ProducerBatch(self._owner, self.now - waited_s[0], DELIVERY_TIMEOUT_S, 0, 0, self.now_ms)
        entry = self.ledger.open(batch)
        for waited in waited_s:
            batch.append(b"%d" % next(self._numbers), None, None, self.now_ms, 10, self.now - waited)
        self.ledger.seal()
        return entry

    def take(self) -> Entry | None:
        return self.ledger.take(self.now, self.now_ms)

    def fly(self) -> list[Entry]:
        """Take what may go now."""
        taken: list[Entry] = []
        while (entry := self.take()) is not None:
            taken.append(entry)
        return taken

    def answer(
        self, entry: Entry, code: int = 0, offset: int = -1, *, named: tuple[int, ...] = (), attempt: int | None = None
    ) -> None:
        number = entry.attempt if attempt is None else attempt
        self._keep(self.ledger.answer(entry, number, code, offset, named, self.now, self.now_ms))

    def lose(self, *entries: Entry, written: bool = True) -> None:
        """Lose the connection with these unanswered; the chaser, which was behind them, is back."""
        self._keep(self.ledger.lost([(entry, entry.attempt, written) for entry in entries], self.now))
        self.returned()

    def returned(self) -> None:
        self._keep(self.ledger.returned(self.now, self.now_ms))

    def leader(self, node: int, epoch: int, topic_id: bytes = TOPIC_ID) -> None:
        self._keep(self.ledger.leader(node, epoch, topic_id, self.now, self.now_ms))

    def grant(self, identity: tuple[int, int]) -> None:
        self._keep(self.ledger.granted(identity, self.now))

    def sleep(self, seconds: float) -> None:
        """Let time pass, and process what falls due."""
        self.now += seconds
        self._keep(self.ledger.tick(self.now, self.now_ms))

    def purge(self) -> None:
        self._keep(self.ledger.purge(self.now, self.now_ms))

    def warm(self, offset: int = 0) -> None:
        """Deliver one record, so that the guard of the first acknowledgement is open."""
        entry = self.send()
        assert self.fly() == [entry]
        self.answer(entry, 0, offset)

    def backoff(self) -> None:
        """Wait as long as a refused head must wait."""
        self.sleep(RETRY_S * 20)

    # ------------------------------------------------------------------ what came out
    @property
    def bumps(self) -> list[tuple[tuple[int, int] | None, bool]]:
        """Pairs: the identity that was used up, whether a new producer id is asked for."""
        return [(need.used, need.fresh) for need in self.needs]

    def records(self, *outcomes: Outcome) -> list[int]:
        """Return the records with one of these outcomes."""
        return sorted(record for record, (outcome, _) in self.told.items() if outcome in outcomes)

    def offsets(self) -> list[int | None]:
        """Return the offsets reported for delivered records, in the order of sending."""
        return [self.told[record][1] for record in self.records(Outcome.DELIVERED)]

    def _keep(self, actions: Sequence[Action]) -> None:
        assert not complaints(self.ledger)
        for action in actions:
            if isinstance(action, Settle):
                self._settle(action)
            elif isinstance(action, NeedIdentity):
                self.needs.append(action)
            elif isinstance(action, Chase):
                self.chases.append(action)
            elif isinstance(action, WantMetadata):
                self.wants.append(action.code)
            else:
                assert isinstance(action, Abort)
                self.aborts += 1

    def _settle(self, action: Settle) -> None:
        assert action.outcome in OUTCOMES[action.why], action
        self.settled.append(action)
        offset = action.base_offset
        for first, last in action.ranges:
            for index in range(first, last):
                value = action.batch.values[index]
                assert value is not None
                record = int(value)
                assert record not in self.told, f"record {record} was told twice"
                self.told[record] = (action.outcome, offset)
                offset = None if offset is None else offset + 1
        for first, last in action.ranges:
            action.batch.settle(Segment(first, last, -1, -1, AiokprodError("x"), action.attempts, self.now))


def numbers(entries: Sequence[Entry]) -> list[tuple[int, int, int]]:
    """Return (producer epoch, first sequence, records) of each."""
    return [(entry.producer_epoch, entry.first_sequence, entry.count) for entry in entries]
