"""A close that begins in the user's code, while `send` is at work: the record is refused, and nothing of it stays.

Where tasks are eager (Python 3.12), `create_task(producer.close())` does so. Here the parking is closed as that does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rig import run

from aiokprod import Producer, Record
from aiokprod.errors import ProducerClosedError
from aiokprod.hooks import ProducerInterceptor
from aiokprod.testing import MockCluster


class Closes(ProducerInterceptor):
    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def on_send(self, record: Record) -> Record:
        self._act()
        return record


def options_of(where: str, act: Callable[[], None]) -> dict[str, Any]:
    def acting(result: Any) -> Any:
        act()
        return result

    match where:
        case "serializer":
            return {"value_serializer": acting}
        case "awaitable":
            return {"value_serializer": lambda value: acting(asyncio.sleep(0, value))}
        case "partitioner":
            return {"partitioner": lambda key, every, available: acting(0)}
        case "interceptor":
            return {"interceptors": [Closes(act)]}
        case _:
            return {}


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("where", ["serializer", "awaitable", "partitioner", "interceptor", "headers"])
def test_the_record_is_refused(where: str, many: bool) -> None:
    async def scenario() -> None:
        closing = False

        def act() -> None:
            if closing:
                pipeline: Any = producer._pipeline
                pipeline.parking.close(pipeline.closed_error)

        def headers() -> Iterator[tuple[str, bytes]]:
            act()
            yield "name", b"value"

        async with MockCluster() as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, **options_of(where, act)) as producer:
                await producer.send("t", b"first")
                closing = True
                given: Any = headers() if where == "headers" else ()
                with pytest.raises(ProducerClosedError):
                    if many:
                        await producer.send_many("t", [Record(value=b"second", headers=given)])
                    else:
                        producer.send("t", b"second", headers=given)
                assert producer.health().buffered_bytes == 0
            assert [record.value for record in cluster.records("t")] == [b"first"]

    run(scenario())
