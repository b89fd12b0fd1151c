"""A metadata cache alone, in virtual time: its neighbour is a function that answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from random import Random

from answers import answer, topic
from virtual_time import run_virtual

from aiokprod.cluster.metadata.cache import MetadataCache
from aiokprod.cluster.metadata.snapshot import ClusterSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ConnectionLostError
from aiokprod.wire.messages.metadata import MetadataResponse

Answer = Callable[[list[str]], MetadataResponse]


class Rig:
    """A cache, what it asked for, and what it told."""

    def __init__(self, respond: Answer, **options: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.respond = respond
        self.takes_s = 0.01
        self.asked: list[tuple[float, list[str]]] = []
        self.timeouts: list[float] = []
        self.in_flight = 0
        self.changes: list[tuple[ClusterSnapshot, ClusterSnapshot]] = []
        self.failures: list[AiokprodError] = []
        self.answers = 0
        self.cache = MetadataCache(
            ProducerConfig(bootstrap_servers="b:1", **options),
            fetch=self.fetch,
            changed=lambda old, new: self.changes.append((old, new)),
            answered=self.answered,
            failed=self.failures.append,
            clock=self.loop.time,
            random=Random(1),
        )

    def answered(self) -> None:
        self.answers += 1

    async def fetch(self, topics: list[str], timeout_s: float) -> MetadataResponse:
        self.asked.append((self.loop.time(), sorted(topics)))
        self.timeouts.append(timeout_s)
        self.in_flight += 1
        assert self.in_flight == 1, "two requests in flight"
        try:
            await asyncio.sleep(self.takes_s)
            return self.respond(topics)
        finally:
            self.in_flight -= 1

    @property
    def gaps(self) -> list[float]:
        times = [at for at, _ in self.asked]
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    def asked_since(self, number: int) -> list[list[str]]:
        return [names for _, names in self.asked[number:]]


def everything(names: list[str]) -> MetadataResponse:
    return answer(*[topic(name) for name in names])


def scene(respond: Answer, play: Callable[[Rig], Awaitable[None]], **options: float) -> None:
    async def scenario() -> None:
        rig = Rig(respond, **options)
        task = asyncio.create_task(rig.cache.run())
        try:
            await play(rig)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run_virtual(scenario())


def failing(error: AiokprodError | None = None) -> Answer:
    def respond(names: list[str]) -> MetadataResponse:
        raise error or ConnectionLostError("no broker there")

    return respond
