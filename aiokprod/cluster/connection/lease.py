"""`Lease`: how long the pool keeps a connection, and why it ends.

One per connection of the pool. `look` only decides: time is an argument, and the pool acts.

Invariants: an unused connection ends after `connections_max_idle_ms`; a connection whose credentials expire is replaced
before that (KIP-368), once its requests in flight have been answered; no request in flight is cut off, except when the
credentials have expired, because the broker closes the connection then.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from aiokprod.cluster.connection.connection import BrokerConnection

DRAIN_POLL_S: Final = 0.02
"""Seconds between two looks at a connection that ends as soon as nothing is in flight."""

RENEWAL_EARLIEST: Final = 0.85
RENEWAL_LATEST: Final = 0.95
"""The share of its credentials' lifetime after which a connection is replaced (the reference client's range): random, so
that the connections of many clients do not end together."""


class Keep(NamedTuple):
    """The decision to keep a connection and look again at `look_at` (None: never)."""

    look_at: float | None


class Drain(NamedTuple):
    """The decision to send nothing new and to look again at `look_at`, until nothing is in flight."""

    look_at: float


class End(NamedTuple):
    """The decision to close a connection now."""

    why: str


Look: TypeAlias = Keep | Drain | End


class Lease:
    """A connection of the pool, with the reasons to end it.

    Args:
        connection: the connection, just opened.
        now: the time on the loop's clock.
        random01: a random number from 0 to 1, for the time of its renewal.
    """

    __slots__ = ("_renew_at", "connection", "is_dropped", "leaving", "opened_at")

    def __init__(self, connection: BrokerConnection, now: float, random01: float) -> None:
        self.connection = connection
        self.opened_at = now
        self.leaving: str | None = None  # why it ends once nothing is in flight; set by the pool, or by `look`
        self.is_dropped = False  # closed by this client: its end must not count as a failure of the broker
        self._renew_at: float | None = None
        if connection.expires_at is not None:
            share = RENEWAL_EARLIEST + (RENEWAL_LATEST - RENEWAL_EARLIEST) * random01
            self._renew_at = now + share * (connection.expires_at - now)

    @property
    def is_usable(self) -> bool:
        """Return whether new requests may be sent on the connection."""
        return self.leaving is None and self.connection.is_open

    def look(self, now: float, max_idle_s: float) -> Look:
        """Decide what to do with the connection now; a negative `max_idle_s` means that idle connections stay."""
        connection = self.connection
        expires_at = connection.expires_at
        # First of all, and even with requests in flight: the broker closes a connection at the first request that it
        # reads after the end of the session, without an answer to it.
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
            # Before the broker does it (connections.max.idle.ms there is 10 minutes): otherwise a request may be on its
            # way while the broker closes, and nothing tells whether it was served. (faults: N8)
            idle_since = connection.idle_since
            if idle_since is not None and now >= idle_since + max_idle_s:
                return End(f"it was idle for {max_idle_s:g} s")
            looks.append((now if idle_since is None else idle_since) + max_idle_s)
        return Keep(min(looks, default=None))

    def __repr__(self) -> str:
        return f"<Lease of {self.connection!r}{'' if self.leaving is None else ', ending: ' + self.leaving}>"
