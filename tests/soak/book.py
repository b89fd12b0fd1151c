"""The book of a soak: every send and what was told of it, in a file that outlives a killed producer.

One per life of a workload process. The workload writes lines into a pipe, a keeper process (this file, run as a
program) writes what comes out into the file. A line is written before the record is sent, so that a producer that is
killed leaves its sends behind. Times are seconds of the system's monotonic clock, which all processes share.

    S time session settings                  a producer was opened
    i number time topic partition key size   a record is about to be sent ("-": no partition, no key); perhaps also:
      timeout operation line                 seconds it may take ("-": not known), how it is sent, and with which others
                                             its order is promised ("-": with all of the session)
    o number time partition offset           delivered ("-": where was not told)
    q number time                            delivered, as everything is settled and no failure was told
    n number time error                      failed, certainly not in the log
    p number time error                      failed, possibly in the log
    d number time                            the handle was cancelled: its outcome is not asked for
    m time sample                            what the process looks like, every second
    l time late_s cpu_s                      the loop turned late, and for how much of that we computed ourselves
    C time session report                    the producer was closed; what it left behind
    E time                                   the process ended by itself
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokprod.testing.checker import Outcome, Sent

CHUNK_BYTES = 1 << 16
DETACHED, KILLED, GONE = "detached", "killed", "gone with its topic"  # why no more is known of a record
QUIET = "no failure was told"  # of a delivered record that nothing waited for
LINE = "#"  # between a session and the records of it that have an order of their own
SETTLED = {
    b"o": Outcome.DELIVERED, b"q": Outcome.DELIVERED, b"n": Outcome.NOT_PERSISTED, b"p": Outcome.POSSIBLY_PERSISTED,
}  # fmt: skip


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data into the pipe; wait while it is full."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@dataclass(slots=True)
class Session:
    """One producer, from open to close."""

    name: str
    opened_at: float
    settings: dict[str, Any]
    closed_at: float | None = None
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Book:
    """The book of one life of a process, as read."""

    life: str
    sends: list[Sent] = field(default_factory=list)
    keys: dict[int, int] = field(default_factory=dict)  # number of the record -> its key
    operations: dict[int, str] = field(default_factory=dict)  # number of the record -> how it was sent
    sessions: list[Session] = field(default_factory=list)
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    stalls: list[tuple[float, float, float]] = field(default_factory=list)  # when it ended, how long, of that our CPU
    ended_at: float | None = None  # None: it was killed

    @classmethod
    def read(cls, path: Path) -> Book:
        """Read the file of a life; its name is the life's. The last line may be torn if the process was killed."""
        return cls.of(path.stem, _lines(path))

    @classmethod
    def of(cls, life: str, lines: Iterator[bytes]) -> Book:
        """Make a book from lines; those of a record's settling come after the one that invokes it.

        Raises:
            ValueError: a line is none of ours.
        """
        book = cls(life)
        for line in lines:
            book._take(line)
        return book

    def _take(self, line: bytes) -> None:
        kind, rest = line[:1], line[2:]
        if kind == b"i":
            number, at, topic, partition, key, _, *more = rest.split(b" ")
            if int(number) != len(self.sends):
                raise ValueError(f"{self.life}: record {len(self.sends)} is missing before {line!r}")
            within_s = self.sessions[-1].settings["delivery_timeout_ms"] / 1000
            sent = Sent(
                identity=b"%s:%s" % (self.life.encode(), number),
                topic=topic.decode(),
                partition=None if partition == b"-" else int(partition),
                session=self.sessions[-1].name,
                sent_at=float(at),
                due_at=float(at) + within_s,
            )
            if more:
                timeout, operation, line_name = (each.decode() for each in more)
                sent.due_at = None if timeout == "-" else float(at) + min(within_s, float(timeout))
                self.operations[int(number)] = operation
                if line_name != "-":
                    sent.session = f"{sent.session}{LINE}{line_name}"
            self.sends.append(sent)
            if key != b"-":
                self.keys[int(number)] = int(key)
        elif kind in SETTLED or kind == b"d":
            number, at, *facts = rest.split(b" ")
            sent = self.sends[int(number)]
            sent.settled += 1
            sent.settled_at = float(at)
            sent.outcome = SETTLED.get(kind, Outcome.POSSIBLY_PERSISTED)
            if kind == b"o":
                if facts[0] != b"-":
                    sent.partition = int(facts[0])
                sent.offset = None if facts[1] == b"-" else int(facts[1])
            elif kind == b"q":
                sent.error = QUIET
            else:
                sent.error = facts[0].decode() if facts else DETACHED
        else:
            self._take_rare(kind, rest)

    def _take_rare(self, kind: bytes, rest: bytes) -> None:
        at, _, text = rest.partition(b" ")
        match kind:
            case b"S":
                name, _, settings = text.partition(b" ")
                self.sessions.append(Session(name.decode(), float(at), json.loads(settings)))
            case b"C":
                name, _, report = text.partition(b" ")
                (session,) = (each for each in self.sessions if each.name == name.decode())
                session.closed_at, session.report = float(at), json.loads(report)
            case b"m":
                self.samples.append((float(at), json.loads(text)))
            case b"l":
                late, cpu = text.split(b" ")
                self.stalls.append((float(at), float(late), float(cpu)))
            case b"E":
                self.ended_at = float(at)
            case _:
                raise ValueError(f"{self.life}: a line of no kind of ours: {kind + b' ' + rest!r}")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def keep(path: str) -> None:
    """Copy the pipe to the file until every writer has closed it."""
    with Path(path).open("wb", buffering=0) as file:
        while chunk := os.read(0, CHUNK_BYTES):
            file.write(chunk)


if __name__ == "__main__":
    keep(sys.argv[1])
