"""A loop that refuses a call: as at the end of a deep stack, without memory, or in debug mode from another thread.

Each call that a user's call makes of the loop is refused once. The user's call raises, and the producer is as before: what
comes later is delivered, and the watch has nothing to heal (every test asserts that: tests/conftest.py).
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from virtual_rig import run, started

from aiokprod import Producer
from aiokprod.errors import AiokprodError
from aiokprod.testing.virtual import VirtualNetwork

MOST_CALLS = 20


class Refusals:
    """Counts the calls of a loop, and refuses one of them."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._count = 0

    @contextmanager
    def on(self, loop: Any) -> Iterator[None]:
        """Refuse the call number `at` that is made inside."""
        names = ("call_soon", "call_at")

        def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **options: Any) -> Any:
                self._count += 1
                if self._count == self._at:
                    raise RecursionError("refused")
                return call(*arguments, **options)

            return called

        for name in names:
            setattr(loop, name, refusing(getattr(loop, name)))
        try:
            yield
        finally:
            for name in names:
                delattr(loop, name)
            # asyncio's own: a task whose first step the loop refused is made all the same, and complains when it is collected.
            gc.collect()
            loop.faults[:] = [fault for fault in loop.faults if "was destroyed" not in fault["message"]]


def sends(producer: Producer) -> None:
    producer.send("t", b"refused")


def sends_to_another_partition(producer: Producer) -> None:
    producer.send("t", b"refused", partition=1)


def sends_to_a_topic_that_is_new_here(producer: Producer) -> None:
    producer.send("new", b"refused")


def sends_to_no_topic(producer: Producer) -> None:
    producer.send("nope", b"refused")


def adds_a_callback(producer: Producer) -> None:
    producer.send("t", b"refused").add_done_callback(lambda delivery: None)


def sends_with_a_timeout(producer: Producer) -> None:
    producer.send("t", b"refused", timeout=30.0)


CALLS = (
    sends, sends_to_another_partition, sends_to_a_topic_that_is_new_here, sends_to_no_topic, adds_a_callback,
    sends_with_a_timeout,
)  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "linger 0": {"linger_ms": 0},
    "linger 5": {"linger_ms": 5},
}


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("is_warm", [True, False], ids=["warm", "cold"])
def test_what_comes_after_a_refused_call_is_delivered(
    call: Callable[[Producer], None], options: dict[str, Any], is_warm: bool
) -> None:
    async def scenario(network: VirtualNetwork, at: int) -> bool:
        loop = asyncio.get_running_loop()
        async with started(network, partitions=2, max_block_ms=5_000, **options) as (cluster, producer):
            cluster.create_topic("new")
            if is_warm:
                await producer.send("t", b"before", partition=0)
                await asyncio.sleep(1)
            was_refused = False
            with Refusals(at).on(loop):
                try:
                    call(producer)
                except RecursionError:
                    was_refused = True
            # Nothing awaits these: what waits for a record would look after it.
            later = [producer.send(topic, b"later") for topic in ("t", "new") for _ in range(3)]
            await asyncio.sleep(1)
            assert [delivery.exception() for delivery in later] == [None] * 6, f"call {at} was refused"
            nowhere = producer.send("nope", b"later")
            await asyncio.sleep(6)
            assert isinstance(nowhere.exception(), AiokprodError)
            return was_refused

    refused = 0
    for at in range(1, MOST_CALLS):
        outcome: list[bool] = []

        async def whole(network: VirtualNetwork, at: int = at, outcome: list[bool] = outcome) -> None:
            outcome.append(await scenario(network, at))

        run(whole)
        refused += outcome[0]
    assert refused >= 1
