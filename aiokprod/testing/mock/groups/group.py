"""`Group`: what every group has, of either protocol: a clock, checks of commits, an end. The base of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Committer:
    """The member in whose name offsets are committed. Without one: an empty id, None, -1."""

    member_id: str
    instance_id: str | None
    generation: int
    """The generation, or the epoch of a member of the consumer protocol."""


class Group(ABC):
    """A group of consumers, under one id."""

    kind: ClassVar[str]
    """The protocol, as ListGroups names it: classic or consumer."""

    group_id: str

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state, by Kafka's name."""

    @property
    @abstractmethod
    def type_name(self) -> str:
        """The protocol type: consumer, for a group of consumers."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True if it has no members and is about to have none."""

    @property
    @abstractmethod
    def refuses_deletion_of_offsets(self) -> bool:
        """True if it has members whose topics are not known."""

    @abstractmethod
    def subscribed(self) -> Set[str] | None:
        """Return the topics to which members subscribe; None: those of a member are not known."""

    @abstractmethod
    def check_commit(self, who: Committer, version: int, now: float, *, in_transaction: bool) -> None:
        """Raise RefusalError unless this member may commit offsets now.

        Args:
            version: of OffsetCommit or TxnOffsetCommit.
        """

    @abstractmethod
    def check_commit_of(self, who: Committer, topic_id: bytes, index: int, *, in_transaction: bool) -> None:
        """Raise RefusalError unless this member may commit the offset of this partition."""

    @abstractmethod
    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do; None: as things are, never."""

    @abstractmethod
    def tick(self, now: float) -> None:
        """Carry out the work that is due."""

    @abstractmethod
    def reload(self, now: float) -> None:
        """Go back to what the log says, as a new coordinator reads it."""

    @abstractmethod
    def die(self) -> None:
        """End the group: it was deleted, or is now one of the other protocol."""
