"""`RetryHandler`: stage 5. One per producer: what happens between a failed attempt and the next one.

It sends chasers, hands out identities, and moves partitions between brokers. It is called by the effects of a ledger's
actions, never from within them. Nothing waits in it: a partition in backoff carries its not-before time itself, and a
partition without an identity or a leader is looked at again when one comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aiokprod.pipeline.effects import Effects
from aiokprod.pipeline.ports import Queue, Route


class RetryHandler:
    """Chasers, identities, routes."""

    def __init__(
        self,
        routes: Mapping[int, Route],
        open_route: Callable[[int], Route],
        ask_identity: Callable[[], None],
        want_metadata: Callable[[str], None],
        on_chaser: Callable[[], None],
        effects: Effects,
    ) -> None:
        self._routes = routes
        self._open_route = open_route
        self._ask_identity = ask_identity  # answer with identity_came
        self._want_metadata = want_metadata
        self._on_chaser = on_chaser
        self._effects = effects
        self.identity: tuple[int, int] | None = None  # a producer id nobody has used up, for partitions to come
        self._without_identity: list[Queue] = []
        self.leaderless: set[Queue] = set()

    # ------------------------------------------------------------------ chasers
    def chase(self, queue: Queue, node: int) -> None:
        """Behind what is in flight at the old leader; back at once if nothing is."""
        self._on_chaser()
        route = self._routes.get(node)
        if route is None or not route.chase(queue):
            queue.returned()

    # ------------------------------------------------------------------ identities (ledger: R2)
    def need_identity(self, queue: Queue, used: tuple[int, int] | None, fresh: bool) -> None:
        """A bump is a matter of this partition alone and asks nobody, until the epochs are used up."""
        if used is not None and not fresh:
            queue.granted((used[0], used[1] + 1))
            return
        if used is not None and self.identity is not None and self.identity[0] == used[0]:
            self.identity = None
        if self.identity is not None:
            queue.granted(self.identity)
            return
        self._without_identity.append(queue)
        self._ask_identity()

    def identity_came(self, identity: tuple[int, int]) -> None:
        """A fresh producer id, good for every partition."""
        self.identity = identity
        waiting, self._without_identity = self._without_identity, []
        self._effects.begin()
        try:
            for queue in waiting:
                queue.granted(identity)
        finally:
            self._effects.end()

    # ------------------------------------------------------------------ routes
    def rerouted(self, queue: Queue) -> None:
        """The ledger adopted another leader: register the queue there."""
        old = self._routes.get(queue.node)
        if old is not None:
            old.aggregator.remove(queue)
        queue.node = queue.ledger.node
        if queue.node < 0:
            self.leaderless.add(queue)
            self._want_metadata(f"{queue.topic}-{queue.partition} has no leader")
        else:
            self.leaderless.discard(queue)

    def route_of(self, queue: Queue) -> Route | None:
        """Where its batches go; None: it has no leader now."""
        if queue.node < 0:
            self._want_metadata(f"{queue.topic}-{queue.partition} has no leader")
            return None
        route = self._routes.get(queue.node)
        return route if route is not None else self._open_route(queue.node)
