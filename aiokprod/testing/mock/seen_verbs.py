"""The verbs of a test about what clients did.

A base class of `MockCluster`. Every verb may be called from any thread, except the one that is awaited on the cluster's
own loop.
"""

from __future__ import annotations

import asyncio

from aiokprod.testing.faults.apis import api_key_of, api_name_of
from aiokprod.testing.mock.counters import Counters, RequestSeen
from aiokprod.testing.own_thread import LoopHome


class SeenVerbs:
    """Questions about the requests that came in."""

    _home: LoopHome
    counters: Counters
    """What was seen and appended; see `requests_seen` for the usual question."""

    def requests_seen(self, api: str | int, broker: int | None = None) -> int:
        """Return the number of requests that the brokers have taken up.

        Args:
            api: name or key of the request, as in "Produce".
            broker: node id; None is all brokers.
        """
        return self._home.call(lambda: self.counters.seen(api_key_of(api), broker))

    def requests(self, api: str | int | None = None) -> list[RequestSeen]:
        """Return the latest requests, oldest first; at most 10,000.

        Args:
            api: name or key of the request, as in "Produce"; None is every API.
        """
        key = None if api is None else api_key_of(api)
        return self._home.call(lambda: [seen for seen in self.counters.recent if key in (None, seen.api_key)])

    async def until_seen(self, api: str | int, count: int = 1, *, broker: int | None = None) -> None:
        """Wait on the cluster's loop until the brokers have taken up a number of requests.

        Args:
            api: name or key of the request, as in "Produce".
            count: number of requests since the cluster was made.
            broker: node id; None is all brokers together.

        Cancellation: stops waiting.
        """
        key = api_key_of(api)
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def look() -> None:
            if self.counters.seen(key, broker) >= count and not reached.done():
                reached.set_result(None)

        self.counters.watchers.add(look)
        try:
            look()
            await reached
        finally:
            self.counters.watchers.discard(look)

    def wait_until_seen(
        self, api: str | int, count: int = 1, *, broker: int | None = None, timeout_s: float = 10.0
    ) -> None:
        """Block this thread, which is not the cluster's, until the brokers have taken up a number of requests.

        Args:
            api: name or key of the request, as in "Produce".
            count: number of requests since the cluster was made.
            broker: node id; None is all brokers together.
            timeout_s: seconds.

        Raises:
            TimeoutError: there were fewer in this time; the message names the requests that came.
        """

        async def reached() -> None:
            await asyncio.wait_for(self.until_seen(api, count, broker=broker), timeout_s)

        try:
            self._home.wait(reached, timeout_s + 5)
        except TimeoutError:
            seen = {f"{api_name_of(key)}@{node}": n for (node, key), n in self.counters.requests.items()}
            raise TimeoutError(f"{count} of {api} not seen in {timeout_s} s; seen: {seen}") from None
