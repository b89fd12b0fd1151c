"""The members of a classic group, what they ask, and what they are answered. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from aiokprod.wire.codes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAsk:
    """One JoinGroup request. Times are seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_s: float
    rebalance_s: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    new_member_id: str
    """The id to give to a member that has none."""
    needs_known_id: bool
    """Whether a new member only gets an id, and joins with it (KIP-394): from JoinGroup v4 on."""
    skips_assignment: bool
    """Whether a leader can be told not to assign (KIP-814): from JoinGroup v9 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a JoinGroup."""

    code: int = 0
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skips_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """(member id, instance id, metadata of the chosen protocol), for the leader only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a SyncGroup."""

    code: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply: TypeAlias = Callable[[Joined], None]
SyncReply: TypeAlias = Callable[[Synced], None]


@dataclass(slots=True)
class ClassicMember:
    """One member. `deadline` is when its session is over, on the clock of the group; None: it waits for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_s: float
    rebalance_s: float
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    deadline: float | None = None
    join_reply: JoinReply | None = field(default=None, repr=False)
    sync_reply: SyncReply | None = field(default=None, repr=False)

    def update(self, ask: JoinAsk) -> None:
        """Take over what a JoinGroup says of the member."""
        self.client_id, self.client_host = ask.client_id, ask.client_host
        self.session_s, self.rebalance_s, self.protocols = ask.session_s, ask.rebalance_s, ask.protocols

    def metadata(self, protocol: str | None) -> bytes:
        """Return the metadata of one of its protocols, empty if it has none of this name."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def answer_join(self, joined: Joined) -> None:
        """Answer the JoinGroup that waits, if one does."""
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(joined)

    def answer_sync(self, synced: Synced) -> None:
        """Answer the SyncGroup that waits, if one does."""
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(synced)

    def refuse(self, code: ErrorCode) -> None:
        """Answer whatever waits with a code."""
        self.answer_join(Joined(code=code, member_id=self.member_id))
        self.answer_sync(Synced(code=code))
