"""`FirstWrites`: writes that were to be the first of a transaction in a partition, from the question to the answer.

One per partition, in the memory of its leader. A broker that asks the coordinator about a batch notes it before, so that
of several on their way none overtakes the one before it; a note stays when the batch is refused, and then binds every
later batch of the producer, transactional or not, until one of a transaction is appended. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Note:
    """The lowest sequence that was tried in the newest epoch."""

    epoch: int
    lowest_sequence: int
    in_second_version: bool


class FirstWrites:
    """The first writes that were tried, by producer id."""

    __slots__ = ("_notes",)

    def __init__(self) -> None:
        self._notes: dict[int, _Note] = {}

    def __repr__(self) -> str:
        return f"<FirstWrites producers={list(self._notes)}>"

    def tried(self, producer_id: int, epoch: int, sequence: int, *, in_second_version: bool) -> None:
        """Note that the coordinator is asked about a batch. The first such question decides the producer's version."""
        note = self._notes.setdefault(producer_id, _Note(epoch, sequence, in_second_version))
        if epoch > note.epoch:
            note.epoch, note.lowest_sequence = epoch, sequence
        elif epoch == note.epoch:
            note.lowest_sequence = min(note.lowest_sequence, sequence)

    def refuses(self, producer_id: int, sequence: int, *, is_known: bool) -> bool:
        """Return whether a batch is out of order: an earlier one was tried, or it has to be the first (broker: 1.7).

        Args:
            is_known: whether the partition remembers a batch of this producer in its epoch.
        """
        note = self._notes.get(producer_id)
        if note is None:
            return False
        return sequence > note.lowest_sequence or (note.in_second_version and sequence != 0 and not is_known)

    def appended(self, producer_id: int, epoch: int, *, is_marker: bool) -> None:
        """Note a batch of a transaction, or its marker, in the log; one of the next transaction may be on its way."""
        note = self._notes.get(producer_id)
        if note is not None and not (is_marker and note.in_second_version and note.epoch == epoch):
            del self._notes[producer_id]

    def forget(self) -> None:
        """Forget the questions: another replica leads now, which has asked none."""
        self._notes.clear()
