"""FastAPI: Starlette's `kafka_lifespan`, and the producer as a dependency.

In tests: `app.dependency_overrides[get_producer] = lambda: stand_in`.
"""

from __future__ import annotations

from typing import Annotated

from aiokprod.producer import Producer

try:
    from fastapi import Depends
    from fastapi.requests import HTTPConnection
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "aiokprod.integrations.fastapi needs: pip install fastapi", name=missing.name
    ) from missing

from aiokprod.integrations import starlette
from aiokprod.integrations.starlette import kafka_lifespan

__all__ = ["kafka_lifespan", "get_producer", "ProducerDep"]


async def get_producer(connection: HTTPConnection) -> Producer:
    """Return the producer, as a dependency of requests and web sockets.

    A coroutine, because FastAPI runs a plain function in a thread.

    Args:
        connection: a request or a web socket of the application.

    Raises:
        ProducerNotStartedError: the application runs without `kafka_lifespan`.

    Cancellation: not possible, as nothing is awaited.
    """
    return starlette.get_producer(connection)


ProducerDep = Annotated[Producer, Depends(get_producer)]
"""The producer as a parameter of a handler: `async def place(order: Order, producer: ProducerDep)`."""
