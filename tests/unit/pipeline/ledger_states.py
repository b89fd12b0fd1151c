"""Which facts go with which state of a batch, and which outcomes with which reason. The explorations assert it in each step.

`complaints` is a pure function of a ledger: what it holds that the tables do not allow.
"""

from __future__ import annotations

from typing import NamedTuple

from aiokprod.pipeline.partition.ledger import SEQUENCES, Entry, Ledger, Outcome, Reason, State

EITHER = (False, True)
NEVER = (False,)
ALWAYS = (True,)
Allowed = tuple[bool, ...]


class Facts(NamedTuple):
    """The facts that may be true of a batch of an idempotent ledger in one state, between two events."""

    stamped: Allowed
    sent: Allowed
    ambiguous: Allowed
    code: Allowed
    """Its last attempt of this round was answered with an error."""


LEGAL = {
    State.OPEN: Facts(NEVER, NEVER, NEVER, NEVER),
    State.QUEUED: Facts(NEVER, EITHER, NEVER, NEVER),
    State.FLYING: Facts(ALWAYS, ALWAYS, EITHER, NEVER),
    State.WAITING: Facts(ALWAYS, ALWAYS, EITHER, EITHER),
    State.ASKED: Facts(ALWAYS, ALWAYS, EITHER, ALWAYS),
    State.ACKED: Facts(ALWAYS, ALWAYS, EITHER, EITHER),
    State.DEAD_FLYING: Facts(ALWAYS, ALWAYS, EITHER, NEVER),
    State.DEAD: Facts(ALWAYS, ALWAYS, EITHER, EITHER),
}
WITH_NUMBERS_ONLY = (State.ASKED, State.ACKED)
"""States that a ledger without numbers (R9) does not keep: its only batch in flight leaves when it is ACKED."""

OUTCOMES = {
    Reason.ANSWER: {Outcome.DELIVERED},
    Reason.PROOF: {Outcome.DELIVERED},
    Reason.DEADLINE: {Outcome.NOT, Outcome.POSSIBLY},
    Reason.RETRIES: {Outcome.NOT, Outcome.POSSIBLY},
    Reason.PURGE: {Outcome.NOT, Outcome.POSSIBLY},
    Reason.ABORT: {Outcome.NOT, Outcome.POSSIBLY},
    Reason.REJECTED: {Outcome.NOT},
    Reason.FATAL: {Outcome.POSSIBLY},
    Reason.OVERTAKEN: {Outcome.NOT},
    Reason.OLD: {Outcome.POSSIBLY},
    Reason.BUMP: {Outcome.POSSIBLY},
}


def complaints(ledger: Ledger) -> list[str]:
    """Return everything in the ledger that no event may leave behind."""
    entries = list(ledger.entries)
    found = [f"{entry!r}: {wrong}" for entry in entries for wrong in _of_entry(entry, ledger)]
    if len(entries) != len(ledger.entries):
        found.append(f"{len(ledger.entries)} entries are counted, these are there: {entries}")
    was_sent = [entry.is_sent or entry.is_stamped for entry in entries]
    if was_sent != sorted(was_sent, reverse=True):
        found.append(f"a batch that was sent is behind one that was not: {entries}")
    if any(not entry.is_sealed for entry in entries[:-1]):
        found.append(f"an open batch is not the last: {entries}")
    stamped = [entry for entry in entries if entry.is_stamped]
    if stamped:
        if len({entry.identity for entry in stamped}) > 1:
            found.append(f"two identities: {entries}")
        # Gaps are legal: the numbers of a batch that failed POSSIBLY stay used (R2.3). Overlaps are not.
        firsts = [*(entry.first_sequence for entry in stamped[1:]), ledger.next_sequence]
        for entry, follower in zip(stamped, firsts, strict=True):
            if (follower - entry.first_sequence - entry.count) % SEQUENCES > SEQUENCES // 2:
                found.append(f"the sequence {follower} does not follow {entry!r}")
    if ledger.leadership._is_new_topic and not ledger.leadership.is_pending:
        found.append("a recreated topic without its leader")
    return found


def _of_entry(entry: Entry, ledger: Ledger) -> list[str]:
    state, facts, wrong = entry.state, LEGAL[entry.state], list[str]()
    stamped = facts.stamped if ledger.idempotent else NEVER
    if entry.is_stamped not in stamped:
        wrong.append("its stamp")
    if entry.is_sent not in facts.sent:
        wrong.append("its attempts")
    if entry.is_ambiguous not in facts.ambiguous:
        wrong.append("its doubt")
    if (entry.code is not None) not in facts.code:
        wrong.append("its code")
    if entry.code is not None and ledger.flowing and state is State.WAITING:
        wrong.append("a code that is no round's")
    if entry.proves_nothing and state is not State.ACKED:
        wrong.append("it proves nothing without being ACKED")
    if state in WITH_NUMBERS_ONLY and not ledger.idempotent:
        wrong.append("a ledger without numbers")
    if state is State.ASKED and ledger.transactional:
        wrong.append("asked in a transaction")
    return wrong
