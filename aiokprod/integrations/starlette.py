"""Starlette: `kafka_lifespan` for the application, `get_producer` for handlers of requests and web sockets.

The producer is in the lifespan's state, not in a global and not in `app.state`: each run of the application has its own, and
mounted applications see it too.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar, overload

from aiokprod.config import ProducerConfig
from aiokprod.config.call_timeouts import UNSET, Unset
from aiokprod.errors import ConfigError, ProducerNotStartedError
from aiokprod.integrations.running import check_arguments, running
from aiokprod.producer import Producer

try:
    from starlette.requests import HTTPConnection
    from starlette.types import Lifespan, StatefulLifespan
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "aiokprod.integrations.starlette needs: pip install starlette", name=missing.name
    ) from missing

AppT = TypeVar("AppT")


@overload
def kafka_lifespan(
    producer: Producer | ProducerConfig,
    *,
    lifespan: None = None,
    name: str = "producer",
    wait: bool = False,
    start_timeout: float | Unset | None = UNSET,
    close_timeout: float | Unset | None = UNSET,
) -> StatefulLifespan[object]: ...


@overload
def kafka_lifespan(
    producer: Producer | ProducerConfig,
    *,
    lifespan: Lifespan[AppT],
    name: str = "producer",
    wait: bool = False,
    start_timeout: float | Unset | None = UNSET,
    close_timeout: float | Unset | None = UNSET,
) -> StatefulLifespan[AppT]: ...


def kafka_lifespan(
    producer: Producer | ProducerConfig,
    *,
    lifespan: Lifespan[AppT] | None = None,
    name: str = "producer",
    wait: bool = False,
    start_timeout: float | Unset | None = UNSET,
    close_timeout: float | Unset | None = UNSET,
) -> StatefulLifespan[AppT]:
    """Make a lifespan that runs the producer around the application's own lifespan.

    Args:
        producer: one that is not started yet, or a config, from which each run of the application builds its own.
        lifespan: the application's own; the producer is added to its state. Several producers are several
            `kafka_lifespan`s, one inside the other, each with its `name`.
        name: the key in the state; `get_producer` reads "producer".
        wait: True fails the startup if no broker answers. False starts without Kafka, and accepts records at once.
        start_timeout: seconds, with `wait`; without it `start_timeout_ms` applies.
        close_timeout: seconds to deliver accepted records (None: no bound), after the application's own shutdown. Without it
            `close_timeout_ms` applies if it was given, else it is 20.

    Returns:
        The lifespan, for `Starlette(lifespan=...)` or `FastAPI(lifespan=...)`.

    Raises:
        ConfigError: an argument is wrong, or `lifespan` lacks its `@asynccontextmanager`; at startup: its state has the key
            `name` already.
        UsageError: at startup: the producer was started elsewhere (two applications need two producers).
    """
    check_arguments(producer, start_timeout, close_timeout)
    if inspect.isasyncgenfunction(lifespan):
        raise ConfigError(
            f"{lifespan.__qualname__} is not a lifespan yet: decorate it with @contextlib.asynccontextmanager"
        )

    @asynccontextmanager
    async def composed(app: AppT) -> AsyncGenerator[dict[str, Any]]:
        async with running(producer, wait=wait, start_timeout=start_timeout, close_timeout=close_timeout) as started:
            if lifespan is None:
                yield {name: started}
                return
            own: AbstractAsyncContextManager[Any] = lifespan(app)
            async with own as state:
                state = dict(state or {})
                if name in state:
                    raise ConfigError(f"the lifespan's state has {name!r} already: give kafka_lifespan another name=")
                yield {**state, name: started}

    return composed


def get_producer(connection: HTTPConnection) -> Producer:
    """Return the producer of `kafka_lifespan`: `get_producer(request)`, `get_producer(websocket)`.

    Args:
        connection: a request or a web socket of the application.

    Raises:
        ProducerNotStartedError: the application runs without that lifespan.
    """
    producer: Producer | None = getattr(connection.state, "producer", None)  # or a test's stand-in
    if producer is None:
        raise ProducerNotStartedError(
            "no producer in the state of this application: it needs lifespan=kafka_lifespan(...), and a TestClient runs"
            " the lifespan only inside `with TestClient(app) as client:`"
        )
    return producer
