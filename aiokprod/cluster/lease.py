"""`Lease`: how long the pool keeps a connection, and why it ends.

One per connection of the pool. `look` decides and does nothing: time is an argument, the pool acts.

Invariants: a connection that nobody uses ends after `connections_max_idle_ms`; one whose credentials expire is replaced
before (KIP-368), after what is in flight has been answered; none of these cuts off anything that is in flight, except
at the very moment the credentials expire, when the broker would.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from aiokprod.cluster.connection import BrokerConnection

DRAIN_POLL_S: Final = 0.02
"""How often a connection that shall end is looked at until nothing is in flight on it."""

RENEWAL_EARLIEST: Final = 0.85
RENEWAL_LATEST: Final = 0.95
"""When in the life of its credentials a connection is replaced (the reference client's range): random, so that the
connections of many clients do not end together."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do before `look_at` (None: ever)."""

    look_at: float | None


@dataclass(frozen=True, slots=True)
class Drain:
    """It ends as soon as nothing is in flight; nothing new is sent meanwhile, and the clock of what is goes on."""

    look_at: float


@dataclass(frozen=True, slots=True)
class End:
    """Close it now."""

    why: str


Look: TypeAlias = Keep | Drain | End


class Lease:
    """A connection of the pool.

    Args:
        connection: just opened.
        now: when.
        random01: for the moment of its renewal.
    """

    __slots__ = ("_renew_at", "connection", "is_dropped", "leaving", "opened_at")

    def __init__(self, connection: BrokerConnection, now: float, random01: float) -> None:
        self.connection = connection
        self.opened_at = now
        self.leaving: str | None = None  # why it is to end once nothing is in flight
        self.is_dropped = False  # closed by us: no fault of the broker
        self._renew_at: float | None = None
        if connection.expires_at is not None:
            share = RENEWAL_EARLIEST + (RENEWAL_LATEST - RENEWAL_EARLIEST) * random01
            self._renew_at = now + share * (connection.expires_at - now)

    @property
    def is_usable(self) -> bool:
        """May new requests be sent on it?"""
        return self.leaving is None and self.connection.is_open

    def look(self, now: float, max_idle_s: float) -> Look:
        """What to do with it now; a negative `max_idle_s` means that idle connections stay."""
        connection = self.connection
        expires_at = connection.expires_at
        if expires_at is not None and now >= expires_at:
            return End("its credentials have expired")
        if self._renew_at is not None and now >= self._renew_at:
            self.leaving = "its credentials expire soon"
        if self.leaving is not None:
            if connection.in_flight == 0:
                return End(self.leaving)
            return Drain(now + DRAIN_POLL_S)
        looks: list[float] = [] if self._renew_at is None else [self._renew_at]
        if max_idle_s >= 0:
            idle_since = connection.idle_since
            if idle_since is not None and now >= idle_since + max_idle_s:
                return End(f"it was idle for {max_idle_s:g} s")
            looks.append((now if idle_since is None else idle_since) + max_idle_s)
        return Keep(min(looks, default=None))

    def __repr__(self) -> str:
        return f"<Lease of {self.connection!r}{'' if self.leaving is None else ', ending: ' + self.leaving}>"
