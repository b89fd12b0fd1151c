"""The facts of the protocol as committed offsets of consumer groups: where each is, and its text. Pure.

    group S.<n>         decision    offset: batch; metadata: `d4 query version tasks slots generation chunks earlier stream
                                    rows decided_s attempts... marked...`, and `d2 ...` with the rest in further parts
    group S.done        done        offset: batch; metadata: `f1 query`
    group S.m<n>        marker      offset: batch; metadata: `m1 query rows fingerprint`

S is the sink id. An offset is committed for a partition, which must exist: the marker topic has `slots` of them, and what has
more entries goes into further groups (n counts from 0). Brokers take 4,096 bytes of metadata (offset.metadata.max.bytes).
Older releases wrote decisions that begin with `d3`, without `decided_s`, and with `d1`, without `rows` as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

from aiokprod.errors import ProtocolError
from aiokprod.spark.exactly_once.protocol import Attempt, BatchName, Decision, Marker

LONGEST: Final = 4_000
"""Bytes of metadata of one offset."""
NONE: Final = "-"
"""Stands for no earlier query, for no stream, and for a number of rows or a time that is not known."""
HEAD_WORDS: Final = {"d4": 10, "d3": 9, "d1": 8}
"""Words of the first part of a decision before those that name its transactions, by its kind."""
QUERY_DIGITS: Final = 32
Place: TypeAlias = "tuple[str, int]"
"""Group, and partition of the marker topic."""


class Fact(NamedTuple):
    """A committed offset."""

    offset: int
    text: str


class Chunk(NamedTuple):
    """One part of a decision, as an offset."""

    place: Place
    fact: Fact


def name_of_query(query: str) -> str:
    """Return the name of a query in facts: of a fixed length, whatever a `txnAppId` looks like."""
    return sha256(query.encode()).hexdigest()[:QUERY_DIGITS]


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a sink id stands for.

    Args:
        sink: the sink id; has no dot, so that no id of another sink begins in the same way.
        topic: the marker topic.
        slots: number of its partitions that are used.
    """

    sink: str
    topic: str
    slots: int

    @property
    def control(self) -> str:
        """The transactional id of drivers."""
        return f"{self.sink}.ctl"

    @property
    def prefix(self) -> str:
        """The beginning of all names."""
        return f"{self.sink}."

    @property
    def done(self) -> Place:
        """The place of the last finished batch."""
        return f"{self.sink}.done", 0

    def decision(self, chunk: int) -> Place:
        """Return the place of one part of the decision."""
        return f"{self.sink}.{chunk // self.slots}", chunk % self.slots

    def marker(self, partition: int) -> Place:
        """Return the place of the marker of a partition of the job."""
        return f"{self.sink}.m{partition // self.slots}", partition % self.slots

    def task(self, generation: int, partition: int, attempt: int) -> str:
        """Return the transactional id of a task attempt."""
        return f"{self.sink}.{generation}.{partition}.{attempt}"

    def task_of(self, transactional_id: str) -> tuple[int, int, int] | None:
        """Return generation, partition and attempt of the transactional id of a task; None if it is none of this sink."""
        found = re.fullmatch(re.escape(self.prefix) + r"(\d{1,5})\.(\d{1,9})\.(\d{1,9})", transactional_id)
        return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


# ---------------------------------------------------------------------- texts
def marker_text(marker: Marker) -> Fact:
    """Return a marker as an offset."""
    return Fact(marker.batch.number, f"m1 {marker.batch.query} {marker.rows} {marker.fingerprint:x}")


def read_marker(fact: Fact) -> Marker:
    """Read a marker. Raises ProtocolError if it is something else."""
    query, rows, fingerprint = _words(fact, "m1", 3)
    return Marker(BatchName(query, fact.offset), _number(rows), _number(fingerprint, 16))


def done_text(batch: BatchName) -> Fact:
    """Return a finished batch as an offset."""
    return Fact(batch.number, f"f1 {batch.query}")


def read_done(fact: Fact) -> BatchName:
    """Read a finished batch. Raises ProtocolError if it is something else."""
    (query,) = _words(fact, "f1", 1)
    return BatchName(query, fact.offset)


def decision_texts(names: Names, decision: Decision) -> list[Chunk]:
    """Return a decision as offsets, all to be written in one transaction."""
    generation = decision.attempts[0].generation if decision.attempts else 0
    words = [f"{each.partition}.{each.attempt}.{each.producer_id}.{each.epoch}" for each in decision.attempts]
    words += [str(each) for each in decision.marked]
    rows = NONE if decision.rows is None else decision.rows
    decided_s = NONE if decision.decided_s is None else decision.decided_s
    rest = f"{','.join(decision.earlier) or NONE} {decision.stream or NONE} {rows} {decided_s}"
    head = f"d4 {decision.batch.query} {decision.version} {decision.tasks} {names.slots} {generation}"
    parts: list[list[str]] = [[]]
    size = len(f"{head} {len(words)} {rest}")  # there are no more parts than words
    for word in words:
        if size + len(word) + 1 > LONGEST:
            parts.append([])
            size = len("d2")
        parts[-1].append(word)
        size += len(word) + 1
    heads = (f"{head} {len(parts)} {rest}", *["d2"] * (len(parts) - 1))
    texts = [" ".join((first, *part)) for first, part in zip(heads, parts, strict=True)]
    return [Chunk(names.decision(number), Fact(decision.batch.number, text)) for number, text in enumerate(texts)]


class Head(NamedTuple):
    """The number and the places of the parts of a decision, as the first part has them."""

    chunks: int
    slots: int


def read_head(fact: Fact) -> Head:
    """Read how many parts a decision has, and where they are. Raises ProtocolError if it is something else."""
    words = _head_words(fact)
    return Head(_number(words[5]), max(1, _number(words[3])))


def read_decision(facts: Iterable[Fact]) -> Decision:
    """Read a decision from all of its parts, in their order. Raises ProtocolError if they are something else."""
    first, *others = facts
    query, version, tasks, _, generation, _, earlier, stream, rows, decided, *entries = _head_words(first)
    for each in others:
        if each.offset != first.offset:
            raise ProtocolError(f"a part of the decision of batch {first.offset} is of batch {each.offset}")
        entries += _words(each, "d2", 0, at_least=True)
    read = tuple(_attempt(_number(generation), word) for word in entries if "." in word)
    marked = tuple(_number(word) for word in entries if "." not in word)
    queries = () if earlier == NONE else tuple(earlier.split(","))
    of_stream = None if stream == NONE else stream
    count = None if rows == NONE else _number(rows)
    decided_s = None if decided == NONE else _number(decided)
    batch = BatchName(query, first.offset)
    return Decision(batch, _number(version), _number(tasks), read, queries, of_stream, count, marked, decided_s)


def _head_words(fact: Fact) -> list[str]:
    """Return the words of the first part of a decision, in the newest form."""
    kind = next((each for each in HEAD_WORDS if fact.text.startswith(f"{each} ")), "d4")
    words = _words(fact, kind, HEAD_WORDS[kind], at_least=True)
    missing = HEAD_WORDS["d4"] - HEAD_WORDS[kind]
    words[HEAD_WORDS[kind] : HEAD_WORDS[kind]] = [NONE] * missing
    return words


def _attempt(generation: int, word: str) -> Attempt:
    numbers = [_number(each) for each in word.split(".")]
    if len(numbers) != 4:
        raise ProtocolError(f"{word!r} names no transaction of a decision")
    return Attempt(generation, *numbers)


def _words(fact: Fact, kind: str, count: int, *, at_least: bool = False) -> list[str]:
    found, *words = fact.text.split(" ")
    if found != kind or not (len(words) == count or (at_least and len(words) > count)):
        raise ProtocolError(f"the metadata {fact.text[:80]!r} of a committed offset are not of this sink")
    return words


def _number(word: str, base: int = 10) -> int:
    try:
        number = int(word, base)
    except ValueError:
        raise ProtocolError(f"{word!r} in the metadata of a committed offset is no number") from None
    if number < 0:
        raise ProtocolError(f"{word!r} in the metadata of a committed offset is negative")
    return number


def by_group(places: Mapping[Place, Fact]) -> dict[str, dict[int, Fact]]:
    """Return the offsets of each group."""
    groups: dict[str, dict[int, Fact]] = {}
    for (group, partition), fact in places.items():
        groups.setdefault(group, {})[partition] = fact
    return groups
