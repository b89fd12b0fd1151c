"""Drawn requests about groups and transactions: no handler crashes, and each request is answered or ends its connection."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import struct
import typing
from random import Random
from typing import Any

from mock_client import RawClient

from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

SEEDS = 12
REQUESTS = 150
APIS = (
    "AddOffsetsToTxn", "AddPartitionsToTxn", "ConsumerGroupDescribe", "ConsumerGroupHeartbeat", "DeleteGroups",
    "DescribeGroups", "DescribeProducers", "DescribeTransactions", "EndTxn", "FindCoordinator", "Heartbeat", "InitProducerId",
    "JoinGroup", "LeaveGroup", "ListGroups", "ListTransactions", "OffsetCommit", "OffsetDelete", "OffsetFetch", "SyncGroup",
    "TxnOffsetCommit", "WriteTxnMarkers",
)  # fmt: skip
TEXTS = [
    "",
    "g",
    "g",
    "t",
    "tx",
    "m",
    "range",
    "uniform",
    "consumer",
    "Ongoing",
    "Stable",
    "(a+)+b",
    ".*",
    "(",
    "é\u2028",
    "y" * 40_000,
]
BLOBS = [b"", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff", b"\xff" * 7, bytes(70_000)]
NUMBERS = [-(2**31), -(2**15), -2, -1, 0, 0, 1, 1, 2, 1000, 6000, 10_000, 45_000, 2**15 - 1, 2**31 - 1, 2**63 - 1]


def kind(api: str, suffix: str) -> Any:
    module = "".join(f"_{char.lower()}" if char.isupper() else char for char in api).removeprefix("_")
    return getattr(importlib.import_module(f"aiokprod.wire.messages.{module}"), api + suffix)


REQUEST_KINDS = [kind(api, "Request") for api in APIS]


class Drawing:
    """Values of requests: fixed ones, and those that answers have told."""

    def __init__(self, random: Random, topic_id: bytes) -> None:
        self.random = random
        self.texts, self.numbers, self.blobs = list(TEXTS), list(NUMBERS), [*BLOBS, topic_id, topic_id]

    def value(self, hint: Any) -> Any:
        """Return a value of a type."""
        random, arguments = self.random, typing.get_args(hint)
        if type(None) in arguments:
            return None if random.random() < 0.25 else self.value(arguments[0])
        if typing.get_origin(hint) is list:
            return [self.value(arguments[0]) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        if dataclasses.is_dataclass(hint):
            hints = typing.get_type_hints(hint)
            names = [field.name for field in dataclasses.fields(hint)]
            return hint(**{name: self.value(hints[name]) for name in names})  # type: ignore[operator]
        drawn: list[Any] = {str: self.texts, int: self.numbers, bytes: self.blobs, bool: [True, False]}[hint]
        return random.choice(drawn)

    def learn(self, answer: Any) -> None:
        """Take ids, epochs and names of an answer into the next requests."""
        for field in dataclasses.fields(answer):
            value = getattr(answer, field.name)
            if isinstance(value, str) and 0 < len(value) < 100 and len(self.texts) < 60:
                self.texts.append(value)
            elif type(value) is int and value > 0 and len(self.numbers) < 60:
                self.numbers.append(value)
            for part in value if isinstance(value, list) else [value]:
                if dataclasses.is_dataclass(part):
                    self.learn(part)


async def asked(client: RawClient, request: Any, version: int, wait_s: float) -> Any:
    """Return the answer; None: the connection has ended, or a member waits for others."""
    answer_kind = kind(type(request).__name__.removesuffix("Request"), "Response")
    try:
        async with asyncio.timeout(wait_s):
            return await client.ask(request, answer_kind, version)
    except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
        return None


def test_every_request_is_answered_or_ends_its_connection() -> None:
    answered = 0

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        nonlocal answered
        async with MockCluster(1, network=network, seed=1) as cluster:
            cluster.create_topic("t", partitions=2)
            drawing = Drawing(random, cluster.topic_id("t"))
            client = await RawClient(cluster).__aenter__()
            for _ in range(REQUESTS):
                of = random.choice(REQUEST_KINDS)
                version = random.randint(of.MIN_VERSION, of.MAX_VERSION)
                request = drawing.value(of)
                try:
                    request.encode(version)
                except (AiokprodError, OverflowError, ValueError, struct.error):
                    continue  # no client can send it
                answer = await asked(client, request, version, random.choice((0.5, 400)))
                if answer is None:
                    await client.__aexit__(None, None, None)
                    client = await RawClient(cluster).__aenter__()
                    continue
                answered += 1
                drawing.learn(answer)
                await asyncio.sleep(random.choice((0, 0, 0, 1, 50)))
            await client.__aexit__(None, None, None)
            await asyncio.sleep(2000)
            assert cluster.counters.crashes == []

    for seed in range(SEEDS):
        run_virtual(scenario, seed=seed)
    assert answered > SEEDS * REQUESTS / 4, "most requests cannot be sent, or end their connection"
