"""Which shard a long test belongs to, and which shard a commit plays. Pure.

A test belongs to a shard by the hash of its id, so a new test moves no other one, and every machine agrees. In as many commits
as there are shards, about two thirds of the tests are played at least once (the commits draw their shards); `nox -s long` plays
all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True)
class Shard:
    """One part of the long tests.

    Args:
        number: counts from 1.
        of: how many there are.
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ValueError(f"there is no shard {self.number} of {self.of}: write 1/{self.of} to {self.of}/{self.of}")

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Return the shard of a text such as `3/12`."""
        number, slash, of = text.partition("/")
        if not (slash and number.isdecimal() and of.isdecimal()):
            raise ValueError(f"{text!r} names no shard: write the number and how many there are, such as 3/12")
        return cls(int(number), int(of))

    def holds(self, test: str) -> bool:
        """Return whether the test of this id belongs to the shard."""
        return _number(test, self.of) == self.number

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def shard_of_commit(commit: str, of: int) -> Shard:
    """Return the shard that the commit of this hash plays."""
    return Shard(_number(commit, of), of)


def _number(name: str, of: int) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8]) % of + 1
