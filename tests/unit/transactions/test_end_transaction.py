"""The checks of `end_transaction`, and where nothing can be prepared. What it does: behaviour/test_prepared_transactions.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokprod import PreparedTransaction, end_transaction
from aiokprod.errors import ConfigError, UsageError
from aiokprod.testing import MemoryProducer


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"prepared": "text"}, UsageError),
        ({"commit": "yes"}, UsageError),
        ({"timeout": None}, ConfigError),
        ({"timeout": -1}, ConfigError),
        ({"timeout": "1"}, ConfigError),
        ({"timeout": 1e300}, ConfigError),
        ({"lingr_ms": 1}, ConfigError),
    ],
    ids=["prepared", "commit", "no timeout", "negative", "text", "huge", "option"],
)
def test_arguments_are_checked_before_anything_is_asked(wrong: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        asyncio.run(end_transaction("localhost:1", **({"prepared": PreparedTransaction("i", 1, 1, 2)} | wrong)))


def test_a_memory_producer_refuses() -> None:
    async def scenario() -> None:
        async with MemoryProducer(transactional_id="i") as producer:
            producer.begin_transaction()
            with pytest.raises(UsageError, match="MockCluster"):
                await producer.prepare_transaction()
            await producer.commit_transaction()

    asyncio.run(scenario())
