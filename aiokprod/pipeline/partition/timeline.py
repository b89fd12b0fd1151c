"""`Timeline`: what happened to a batch, or to a partition, besides the usual: failed attempts, new leaders, failed dials.

Made when the first such thing happens, so a record that is delivered at once has none. Bounded: the first `FIRST` happenings
and the last `LAST` ones are kept. Pure; only text and numbers, so a kept Delivery keeps nothing of the pipeline with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokprod.logs import printable
from aiokprod.waiting import EventKind, WaitsFor

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod.explanation import Event

FIRST: Final = 6
LAST: Final = 10
SHORTEST_TOLD_S: Final = 0.001
"""A shorter wait is not told (s): it holds no record up."""
TEXT_LIMIT: Final = 160  # characters of one happening
NOTE_LINES: Final = 16
ALL: Final = 1 << 62
"""the end of the records that a happening concerns, if it concerns all"""


Waited: TypeAlias = tuple[WaitsFor, float, float, float]
"""The waits of a record before a batch took it: the last thing that it waited for; when its serializer was done and when it was
given room (0: it waited for none); and when it went on (loop time). Rendered when asked for: a batch costs one tuple."""


class Happening:
    """Something that happened at a time to some records of a batch, or to all of them. It may have happened several times."""

    __slots__ = ("at", "began", "broker", "first", "head", "kind", "last", "text", "times", "until")

    def __init__(
        self,
        at: float,
        kind: EventKind,
        text: str,
        broker: int = -1,
        first: int = 0,
        last: int = ALL,
        head: str = "",
        began: float = 0.0,
    ) -> None:
        self.at = at  # loop time, seconds
        self.until = at  # when it happened for the last time
        self.times = 1
        self.kind = kind
        self.text = printable(text, TEXT_LIMIT)
        self.broker = broker  # -1: none
        self.first = first  # of the records that it concerns, by their index in the batch
        self.last = last  # exclusive
        self.head = head  # of an attempt: what began at `began`, and ended now
        self.began = began

    def is_like(self, other: Happening) -> bool:
        """Return whether this is the same thing again: a dial that fails as the one before."""
        return self.kind is EventKind.UNREACHABLE and other.kind is self.kind and other.text == self.text

    def line(self, sent_at: float) -> str:
        """Return it in words, with times after a send."""
        text = self.text
        if self.head:
            text = f"{self.head}, sent at +{max(0.0, self.began - sent_at):.3f} s, {text}"
        if self.times > 1:
            text = f"{text} ({self.times} times, the last at +{max(0.0, self.until - sent_at):.3f} s)"
        return text

    def event(self, sent_at: float) -> Event:
        """Return it as users see it, for a record that was sent at this time."""
        from aiokprod.explanation import Event

        broker = None if self.broker < 0 else self.broker
        return Event(at_s=max(0.0, self.at - sent_at), kind=self.kind, text=self.line(sent_at), broker=broker)

    def __repr__(self) -> str:
        return f"<Happening {self.at:.3f} {self.text}>"


class Timeline:
    """The first and the last happenings, in their order."""

    __slots__ = ("_first", "_last", "told", "told_at")

    def __init__(self) -> None:
        self._first: list[Happening] = []
        self._last: deque[Happening] = deque()
        self.told = ""  # the last story that was told of the batch, to share it
        self.told_at = -1.0  # loop time

    def add(self, happening: Happening) -> None:
        """Add the newest one."""
        newest = self._last[-1] if self._last else self._first[-1] if self._first else None
        if newest is not None and newest.is_like(happening):
            newest.times += 1
            newest.until = happening.at
            return
        if len(self._first) < FIRST:
            self._first.append(happening)
            return
        self._last.append(happening)
        if len(self._last) > LAST:
            self._last.popleft()

    def about(self, first: int, last: int, since: float) -> list[Happening]:
        """Return those that concern some of these records, from a time on."""
        found: list[Happening] = []
        for each in [*self._first, *self._last]:
            if each.first < last and first < each.last and each.until >= since:
                found.append(each)
        return found


def waits_told(sent_at: float, waited: Waited, *, is_over: bool = True) -> list[Happening]:
    """Return what a record has waited for, by the times that are kept of it; with its last wait, if that is over."""
    waits_for, serialized_at, admitted_at, now = waited
    ends: list[tuple[float, WaitsFor]] = [(serialized_at, WaitsFor.SERIALIZER), (admitted_at, WaitsFor.ROOM)]
    is_told = (waits_for is WaitsFor.ROOM and admitted_at > 0) or (
        waits_for is WaitsFor.SERIALIZER and serialized_at > 0
    )
    if is_over and not is_told:
        ends.append((now, waits_for))
    found: list[Happening] = []
    began = sent_at
    for until, what in ends:
        if until - began >= SHORTEST_TOLD_S:
            text = f"has waited {until - began:.3f} s for {what.value}"
            found.append(Happening(until, EventKind.WAITED, text))
        began = until or began
    return found


def merged(
    own: Timeline | None,
    shared: Timeline | None,
    first: int,
    last: int,
    sent_at: float,
    opened_at: float,
    waited: Waited | None = None,
) -> list[Happening]:
    """Return what happened to these records of a batch, and to their partition meanwhile, by time; at most `NOTE_LINES`.

    Args:
        own: of the batch.
        shared: of the partition.
        first: the first of the records.
        last: behind the last of them.
        sent_at: when the first of them was sent: what happened to the batch before is not theirs.
        opened_at: when the batch was opened: what happened to the partition before did not hold them up.
        waited: of the first record of the batch, before the batch took it.
    """
    found: list[Happening] = []
    if waited is not None:
        for each in waits_told(opened_at, waited):
            if each.at >= sent_at:
                found.append(each)
    if own is not None:
        found += own.about(first, last, sent_at)
    if shared is not None:
        for each in shared.about(first, last, opened_at):
            if each not in found:  # else a failure has given it to the batch before
                found.append(each)
    found.sort(key=time_of)
    if len(found) > NOTE_LINES:
        found = found[: NOTE_LINES // 2] + found[-NOTE_LINES // 2 :]
    return found


# No lambda: compiled, a function that has one makes an object for it whenever it is called.
def time_of(happening: Happening) -> float:
    """Return when it happened, to sort by."""
    return happening.at


def note(where: str, opened_at: float, happenings: Iterable[Happening], failed_at: float, end: str) -> str:
    """Return the story of records that failed as the note of their error; bounded in lines and characters.

    Args:
        where: topic and partition.
        opened_at: when the first of them was sent (loop time).
        happenings: in the order of time.
        failed_at: loop time.
        end: why they failed, in a few words.
    """
    lines = [f"Timeline of {where}, after the send:"]
    lines += [f"  +{max(0.0, each.at - opened_at):.3f} s {each.line(opened_at)}" for each in happenings]
    lines.append(f"  +{max(0.0, failed_at - opened_at):.3f} s failed: {end}")
    return "\n".join(lines)
