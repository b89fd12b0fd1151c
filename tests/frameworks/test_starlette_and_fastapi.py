"""A producer inside Starlette and FastAPI: background tasks, lifespan, dependencies, and TestClient as often as one likes."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from fastapi import Request as FastAPIRequest
from fastapi.testclient import TestClient as FastAPITestClient
from starlette.applications import Starlette
from starlette.background import BackgroundTask, BackgroundTasks
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from aiokprod import Producer, RecordMetadata
from aiokprod.errors import UnknownTopicError
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster

Lifespan = Callable[[Any], AbstractAsyncContextManager[None]]


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(auto_create_topics=False) as started:
        started.create_topic("orders", partitions=1)
        yield started


def values(cluster: MockCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders")]


def living(producer: Producer) -> Lifespan:
    """Return a lifespan that starts a producer which was built at import."""

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with producer:
            yield

    return lifespan


def application(producer: Producer) -> Starlette:
    async def later(request: Request) -> JSONResponse:
        tasks = BackgroundTasks()
        body = await request.body()
        tasks.add_task(producer.send, "orders", body, key=b"k")
        tasks.add_task(functools.partial(producer.send, "orders"), body + b" again")
        return JSONResponse({"answered": True}, background=tasks)

    async def nowhere(request: Request) -> JSONResponse:
        return JSONResponse({}, background=BackgroundTask(producer.send, "no-such-topic", b"v"))

    async def now(request: Request) -> JSONResponse:
        metadata = await producer.send("orders", await request.body())
        return JSONResponse({"offset": metadata.offset})

    routes = [
        Route("/later", later, methods=["POST"]),
        Route("/now", now, methods=["POST"]),
        Route("/nowhere", nowhere, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=living(producer))


def test_a_background_task_is_the_plain_method_send(cluster: MockCluster) -> None:
    with TestClient(application(Producer(cluster.bootstrap_servers))) as client:
        for number in range(5):
            assert client.post("/later", content=b"%d" % number).json() == {"answered": True}
    expected = [value for number in range(5) for value in (b"%d" % number, b"%d again" % number)]
    assert values(cluster) == expected
    assert cluster.records("orders")[0].key == b"k"


def test_a_background_task_that_fails_raises_its_typed_error(cluster: MockCluster) -> None:

    app = application(Producer(cluster.bootstrap_servers, max_block_ms=200))
    with TestClient(app) as client, pytest.raises(UnknownTopicError):
        client.post("/nowhere")
    assert values(cluster) == []


def test_one_producer_of_the_module_serves_one_test_client_after_the_other(cluster: MockCluster) -> None:
    producer = Producer(cluster.bootstrap_servers)
    app = application(producer)
    for round_number in range(3):  # each has an event loop and a thread of its own
        with TestClient(app) as client:
            assert client.post("/now", content=b"%d" % round_number).json() == {"offset": round_number}
            assert producer.health().state is ProducerState.READY
        assert producer.health().state is ProducerState.CLOSED
    assert values(cluster) == [b"0", b"1", b"2"]


def test_the_end_of_the_lifespan_delivers_what_lingers(cluster: MockCluster) -> None:
    producer = Producer(cluster.bootstrap_servers, linger_ms=600_000)

    async def forget(request: Request) -> JSONResponse:
        for number in range(100):
            producer.send("orders", b"%d" % number)
        return JSONResponse({"in the log": len(values(cluster))})

    app = Starlette(routes=[Route("/", forget)], lifespan=living(producer))
    with TestClient(app) as client:
        assert client.get("/").json() == {"in the log": 0}
    assert values(cluster) == [b"%d" % number for number in range(100)]


# ---------------------------------------------------------------------- FastAPI
def producer_of(request: FastAPIRequest) -> Producer:
    """Return the producer: the dependency of handlers that use it."""
    producer = request.app.state.producer
    assert isinstance(producer, Producer)
    return producer


Orders = Annotated[Producer, Depends(producer_of)]


def shop(bootstrap_servers: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with Producer(bootstrap_servers) as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{number}")
    async def order(number: int, producer: Orders) -> dict[str, int | None]:
        metadata = await producer.send("orders", b"%d" % number)
        return {"partition": metadata.partition, "offset": metadata.offset}

    @app.get("/ready")
    async def ready(producer: Orders) -> bool:
        return producer.health().ready

    return app


def test_fastapi_injects_the_producer_of_the_lifespan(cluster: MockCluster) -> None:
    app = shop(cluster.bootstrap_servers)
    for round_number in range(2):
        with FastAPITestClient(app) as client:
            assert client.get("/ready").json() is True
            answer = client.post(f"/orders/{round_number + 7}").json()
            assert answer == {"partition": 0, "offset": round_number}
    assert values(cluster) == [b"7", b"8"]


def test_fastapi_overrides_the_dependency_in_tests(cluster: MockCluster) -> None:
    class Recorder:
        """A stand-in for the producer, as a user's own unit test would write it."""

        def __init__(self) -> None:
            self.sent: list[tuple[str, bytes]] = []

        async def send(self, topic: str, value: bytes) -> RecordMetadata:
            from aiokprod.model import TimestampType

            self.sent.append((topic, value))
            return RecordMetadata(topic, 3, len(self.sent) - 1, None, TimestampType.CREATE_TIME)

    app, recorder = shop("127.0.0.1:1"), Recorder()
    app.dependency_overrides[producer_of] = lambda: recorder
    client = FastAPITestClient(app)  # without `with`: no lifespan, no cluster
    assert client.post("/orders/5").json() == {"partition": 3, "offset": 0}
    assert recorder.sent == [("orders", b"5")]
