"""`aiokprod.integrations`: the producer's life around the application's own, in Starlette, FastAPI and aiohttp."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer
from fastapi import APIRouter, BackgroundTasks, FastAPI, WebSocket
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from aiokprod import Producer, ProducerConfig, ProducerState
from aiokprod.errors import (
    AiokprodError,
    BootstrapError,
    ConfigError,
    ProducerNotStartedError,
    UndeliveredAtCloseError,
    UsageError,
    WrongLoopError,
)
from aiokprod.integrations.aiohttp import PRODUCER, producer_ctx
from aiokprod.integrations.fastapi import ProducerDep
from aiokprod.integrations.running import running
from aiokprod.integrations.starlette import get_producer, kafka_lifespan
from aiokprod.model import CloseReport
from aiokprod.testing import MockCluster

QUICK = {"reconnect_backoff_ms": 10.0, "reconnect_backoff_max_ms": 20.0, "retry_backoff_ms": 10.0}
MUCH_LESS_THAN_THE_DEFAULT_S = 15.0  # start_timeout and close_timeout are 30 s by default


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as started:
        started.create_topic("orders", partitions=1)
        yield started


def values(cluster: MockCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders")]


def config(cluster: MockCluster, **options: Any) -> ProducerConfig:
    return ProducerConfig.of(bootstrap_servers=cluster.bootstrap_servers, **options)


async def now(request: Request) -> JSONResponse:
    metadata = await get_producer(request).send("orders", await request.body())
    return JSONResponse({"offset": metadata.offset})


async def later(request: Request) -> JSONResponse:
    get_producer(request).send("orders", await request.body())
    return JSONResponse({})


async def ready(request: Request) -> JSONResponse:
    return JSONResponse(get_producer(request).health().ready)


ROUTES = [Route("/now", now, methods=["POST"]), Route("/later", later, methods=["POST"]), Route("/ready", ready)]


def application(producer: Producer | ProducerConfig, **settings: Any) -> Starlette:
    return Starlette(routes=ROUTES, lifespan=kafka_lifespan(producer, **settings))


# ---------------------------------------------------------------------- the lifespan and the application's own
@pytest.mark.parametrize("option", ["start_timeout", "close_timeout"])
def test_a_wrong_timeout_is_refused_before_the_producer_starts(cluster: MockCluster, option: str) -> None:
    producer = Producer(config(cluster))
    with pytest.raises(ConfigError, match=f"{option} is '20'"), TestClient(application(producer, **{option: "20"})):
        pass
    assert producer.health().state is ProducerState.NEW


def test_the_producer_is_up_before_the_own_startup_and_closes_after_the_own_shutdown(cluster: MockCluster) -> None:
    producer = Producer(config(cluster, linger_ms=600_000))
    story: list[str] = []

    @asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[dict[str, str]]:
        story.append(f"startup of {type(app).__name__}: {producer.health().state.value}")
        producer.send("orders", b"at startup")
        yield {"greeting": "hello"}
        story.append(f"shutdown: {producer.health().state.value}")
        producer.send("orders", b"at shutdown")

    async def greet(request: Request) -> JSONResponse:
        assert get_producer(request) is producer
        return JSONResponse(request.state.greeting)

    app = Starlette(routes=[Route("/", greet)], lifespan=kafka_lifespan(producer, lifespan=own, wait=True))
    with TestClient(app) as client:
        assert client.get("/").json() == "hello"
        assert values(cluster) == []
    assert story == ["startup of Starlette: READY", "shutdown: READY"]
    assert producer.health().state is ProducerState.CLOSED
    assert values(cluster) == [b"at startup", b"at shutdown"]


def test_an_own_lifespan_without_state_is_fine(cluster: MockCluster) -> None:
    @asynccontextmanager
    async def own(_: object) -> AsyncIterator[None]:
        yield

    with TestClient(application(config(cluster), lifespan=own)) as client:
        assert client.post("/now", content=b"v").json() == {"offset": 0}


@pytest.mark.parametrize("adapter", [kafka_lifespan, producer_ctx])
@pytest.mark.parametrize(
    ("producer", "options", "text"),
    [
        ("localhost:9092", {}, r"producer is 'localhost:9092' \(str\): it must be a Producer .*ProducerConfig"),
        (None, {}, "producer is None"),
        (Producer, {}, r"producer is <class .*Producer'> \(a class\)"),
        (ProducerConfig(bootstrap_servers="localhost:9"), {"close_timeout": -1}, "close_timeout is -1"),
        (ProducerConfig(bootstrap_servers="localhost:9"), {"start_timeout": "x"}, "start_timeout is 'x'"),
    ],
)
def test_wrong_arguments_are_told_where_the_application_is_written(
    adapter: Any, producer: object, options: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        adapter(producer, **options)


def test_an_own_startup_that_raises_is_heard_and_closes_the_producer(cluster: MockCluster) -> None:
    producer = Producer(config(cluster, linger_ms=600_000))

    @asynccontextmanager
    async def own(_: object) -> AsyncIterator[None]:
        producer.send("orders", b"before the trouble")
        raise ZeroDivisionError("the own startup")
        yield

    with pytest.raises(ZeroDivisionError, match="the own startup"), TestClient(application(producer, lifespan=own)):
        pass
    assert producer.health().state is ProducerState.CLOSED
    assert values(cluster) == [b"before the trouble"]


def test_an_own_shutdown_that_raises_is_heard_and_closes_the_producer(cluster: MockCluster) -> None:
    producer = Producer(config(cluster, linger_ms=600_000))

    @asynccontextmanager
    async def own(_: object) -> AsyncIterator[None]:
        yield
        raise ZeroDivisionError("the own shutdown")

    app = application(producer, lifespan=own)
    with pytest.raises(ZeroDivisionError, match="the own shutdown"), TestClient(app) as client:
        client.post("/later", content=b"v")
    assert producer.health().state is ProducerState.CLOSED
    assert values(cluster) == [b"v"]


def test_a_state_that_has_the_name_already_is_refused_and_everything_is_closed(cluster: MockCluster) -> None:
    producer, ended = Producer(config(cluster)), []

    @asynccontextmanager
    async def own(_: object) -> AsyncIterator[dict[str, str]]:
        try:
            yield {"producer": "of films"}
        finally:
            ended.append("own")

    with pytest.raises(ConfigError, match="'producer' already"), TestClient(application(producer, lifespan=own)):
        pass
    assert ended == ["own"]
    assert producer.health().state is ProducerState.CLOSED


def test_a_lifespan_that_lacks_its_decorator_is_refused_when_the_application_is_built(cluster: MockCluster) -> None:
    async def bare(_: object) -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigError, match=r"bare is not a lifespan yet.*asynccontextmanager"):
        kafka_lifespan(config(cluster), lifespan=bare)  # type: ignore[call-overload]


def test_without_the_lifespan_get_producer_says_what_is_missing(cluster: MockCluster) -> None:
    client = TestClient(application(config(cluster)))  # no `with`
    with pytest.raises(ProducerNotStartedError, match=r"lifespan=kafka_lifespan.*with TestClient"):
        client.get("/ready")


# ---------------------------------------------------------------------- one producer, several runs
def test_one_producer_of_the_module_serves_one_test_client_after_the_other(cluster: MockCluster) -> None:
    producer = Producer(config(cluster))
    app = application(producer)
    for number in range(3):  # each has an event loop of its own
        with TestClient(app) as client:
            assert client.post("/now", content=b"%d" % number).json() == {"offset": number}
        assert producer.health().state is ProducerState.CLOSED


def test_a_config_is_a_producer_of_its_own_for_each_run(cluster: MockCluster) -> None:
    seen: list[Producer] = []

    async def look(request: Request) -> JSONResponse:
        seen.append(get_producer(request))
        return JSONResponse({})

    app = Starlette(routes=[Route("/", look)], lifespan=kafka_lifespan(config(cluster)))
    with TestClient(app) as one, TestClient(app) as other:  # at the same time
        one.get("/")
        other.get("/")
    assert seen[0] is not seen[1]
    assert {producer.health().state for producer in seen} == {ProducerState.CLOSED}


def test_a_second_application_with_a_producer_that_runs_is_refused_and_the_first_goes_on(cluster: MockCluster) -> None:
    producer = Producer(config(cluster))
    with TestClient(application(producer)) as first:
        with pytest.raises(UsageError, match="was started elsewhere"), TestClient(application(producer)):
            pass
        assert first.post("/now", content=b"v").json() == {"offset": 0}
    with TestClient(application(producer)) as second:  # one after the other
        assert second.post("/now", content=b"w").json() == {"offset": 1}


# ---------------------------------------------------------------------- Kafka that is down, slow, or gone
def test_an_application_that_starts_before_kafka_delivers_when_kafka_is_there(cluster: MockCluster) -> None:
    for node in cluster.broker_ids:
        cluster.stop_broker(node)
    with TestClient(application(config(cluster, **QUICK))) as client:
        assert client.get("/ready").json() is False
        assert client.post("/later", content=b"early").status_code == 200
        for node in cluster.broker_ids:
            cluster.start_broker(node)
        assert client.post("/now", content=b"on time").json() == {"offset": 1}
        assert client.get("/ready").json() is True
    assert values(cluster) == [b"early", b"on time"]


def test_with_wait_the_startup_fails_without_kafka_and_may_be_tried_again(cluster: MockCluster) -> None:
    producer = Producer(config(cluster, **QUICK))
    app = application(producer, wait=True, start_timeout=0.1)
    for node in cluster.broker_ids:
        cluster.stop_broker(node)
    began = time.monotonic()
    with pytest.raises(BootstrapError), TestClient(app):
        pass
    assert time.monotonic() - began < MUCH_LESS_THAN_THE_DEFAULT_S
    for node in cluster.broker_ids:
        cluster.start_broker(node)
    with TestClient(application(producer, wait=True)) as client:
        assert client.get("/ready").json() is True


def test_close_timeout_bounds_the_shutdown_and_what_is_left_is_told(
    cluster: MockCluster, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[AiokprodError] = []
    app = application(config(cluster, on_delivery_error=failures.append), close_timeout=0.05)
    with TestClient(app) as client:
        client.post("/now", content=b"first")  # the next one waits for its answer alone
        cluster.hold("Produce", before_serving=True)
        client.post("/later", content=b"second")
        began = time.monotonic()
    assert time.monotonic() - began < MUCH_LESS_THAN_THE_DEFAULT_S
    assert [type(failure) for failure in failures] == [UndeliveredAtCloseError]
    assert values(cluster) == [b"first"]
    assert "close() could not deliver 1 record (orders-0: 1 " in caplog.text


def test_the_default_of_close_timeout_is_below_the_grace_period_of_kubernetes() -> None:
    """Unless the option says otherwise: its own default, 30 s, is for programs without such a period."""

    given: list[object] = []

    class Told(Producer):
        async def close(self, timeout: Any = 0) -> CloseReport:
            given.append(timeout)
            return await super().close(0)

    async def scenario(**options: Any) -> None:
        async with running(Told("localhost:9", **options), wait=False):
            pass

    asyncio.run(scenario())
    asyncio.run(scenario(close_timeout_ms=3_000))
    asyncio.run(scenario(close_timeout_ms=-1))
    assert given == [20.0, 3.0, None]
    for function in (kafka_lifespan, producer_ctx, running):
        parameters = inspect.signature(function).parameters
        assert repr(parameters["close_timeout"].default) == "<as the option says>"
        assert repr(parameters["start_timeout"].default) == "<as the option says>"


def test_a_cancelled_application_closes_its_producer() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("orders", partitions=1)
            producer = Producer(config(cluster, linger_ms=600_000))
            up = asyncio.Event()

            async def serve() -> None:
                async with running(producer, wait=True, start_timeout=30.0, close_timeout=30.0) as started:
                    started.send("orders", b"v")
                    up.set()
                    await asyncio.Event().wait()

            serving = asyncio.create_task(serve())
            await up.wait()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            assert producer.health().state is ProducerState.CLOSED
            assert values(cluster) == [b"v"]

    asyncio.run(scenario())


# ---------------------------------------------------------------------- FastAPI
def test_the_dependency_serves_requests_background_tasks_web_sockets_and_mounted_applications(
    cluster: MockCluster,
) -> None:
    app, mounted = FastAPI(lifespan=kafka_lifespan(config(cluster))), FastAPI()

    @app.post("/now/{text}")
    @mounted.post("/now/{text}")
    async def now(text: str, producer: ProducerDep) -> int | None:
        return (await producer.send("orders", text.encode())).offset

    @app.post("/background/{text}")
    async def background(text: str, producer: ProducerDep, tasks: BackgroundTasks) -> None:
        tasks.add_task(producer.send, "orders", text.encode(), key=b"k")

    @app.websocket("/socket")
    async def socket(websocket: WebSocket, producer: ProducerDep) -> None:
        await websocket.accept()
        metadata = await producer.send("orders", await websocket.receive_bytes())
        await websocket.send_json(metadata.offset)

    app.mount("/mounted", mounted)
    with TestClient(app) as client:
        assert client.post("/now/request").json() == 0
        assert client.post("/background/task").status_code == 200
        assert values(cluster) == [b"request", b"task"]  # the client's loop has ended the task before it answers
        with client.websocket_connect("/socket") as websocket:
            websocket.send_bytes(b"socket")
            assert websocket.receive_json() == 2
        assert client.post("/mounted/now/mounted").json() == 3
    assert values(cluster) == [b"request", b"task", b"socket", b"mounted"]
    assert cluster.records("orders")[1].key == b"k"


def test_the_lifespan_may_belong_to_a_router(cluster: MockCluster) -> None:
    router = APIRouter(lifespan=kafka_lifespan(config(cluster)))

    @router.post("/now")
    async def now(producer: ProducerDep) -> int | None:
        return (await producer.send("orders", b"v")).offset

    app = FastAPI()
    app.include_router(router)
    with TestClient(app) as client:
        assert client.post("/now").json() == 0


def test_a_handler_that_fastapi_runs_in_a_thread_is_told_that_it_must_be_async(cluster: MockCluster) -> None:
    app = FastAPI(lifespan=kafka_lifespan(config(cluster)))

    @app.post("/")
    def plain(producer: ProducerDep) -> None:
        producer.send("orders", b"v")

    with TestClient(app) as client, pytest.raises(WrongLoopError):
        client.post("/")


# ---------------------------------------------------------------------- aiohttp
def aiohttp_application(*contexts: Any) -> web.Application:
    async def now(request: web.Request) -> web.Response:
        metadata = await request.app[PRODUCER].send("orders", await request.read())
        return web.json_response({"offset": metadata.offset})

    async def later(request: web.Request) -> web.Response:
        request.app[PRODUCER].send("orders", await request.read())
        return web.json_response({"ready": request.app[PRODUCER].health().ready})

    app = web.Application()
    app.cleanup_ctx.extend(contexts)
    app.router.add_post("/now", now)
    app.router.add_post("/later", later)
    return app


def test_the_context_runs_the_producer_and_its_end_delivers() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("orders", partitions=1)
            producer = Producer(config(cluster, linger_ms=600_000))

            async def own(app: web.Application) -> AsyncIterator[None]:
                app[PRODUCER].send("orders", b"at startup")
                yield
                app[PRODUCER].send("orders", b"at shutdown")

            for _ in range(2):  # one application after the other
                app = aiohttp_application(producer_ctx(producer), own)
                async with AiohttpClient(TestServer(app)) as client:
                    await (await client.post("/later", data=b"in between")).read()
                assert producer.health().state is ProducerState.CLOSED
            assert values(cluster) == [b"at startup", b"in between", b"at shutdown"] * 2

    asyncio.run(scenario())


def test_an_aiohttp_application_that_starts_before_kafka_delivers_when_kafka_is_there() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("orders", partitions=1)
            for node in cluster.broker_ids:
                cluster.stop_broker(node)
            app = aiohttp_application(producer_ctx(config(cluster, **QUICK)))
            async with AiohttpClient(TestServer(app)) as client:
                assert await (await client.post("/later", data=b"early")).json() == {"ready": False}
                for node in cluster.broker_ids:
                    cluster.start_broker(node)
                assert await (await client.post("/now", data=b"on time")).json() == {"offset": 1}
            assert values(cluster) == [b"early", b"on time"]

    asyncio.run(scenario())


def test_another_context_that_fails_at_startup_leaves_no_producer_behind() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            producer = Producer(config(cluster))

            async def own(_: web.Application) -> AsyncIterator[None]:
                raise ZeroDivisionError("the own startup")
                yield

            runner = web.AppRunner(aiohttp_application(producer_ctx(producer), own))
            with pytest.raises(ZeroDivisionError, match="the own startup"):
                await runner.setup()
            await runner.cleanup()  # as web.run_app does
            assert producer.health().state is ProducerState.CLOSED

    asyncio.run(scenario())


def test_two_producers_need_two_keys_and_two_applications_two_producers() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("orders", partitions=1)
            audit = web.AppKey("audit", Producer)
            producer = Producer(config(cluster))
            app = aiohttp_application(producer_ctx(producer), producer_ctx(config(cluster), key=audit))
            async with AiohttpClient(TestServer(app)) as client:
                assert app[audit] is not app[PRODUCER] is producer
                for contexts, error in (
                    ([producer_ctx(producer)], UsageError),
                    ([producer_ctx(config(cluster)), producer_ctx(config(cluster))], ConfigError),
                ):
                    runner = web.AppRunner(aiohttp_application(*contexts))
                    with pytest.raises(error):
                        await runner.setup()
                    await runner.cleanup()
                assert await (await client.post("/now", data=b"v")).json() == {"offset": 0}

    asyncio.run(scenario())


# ---------------------------------------------------------------------- frameworks that are not there
@pytest.mark.parametrize("framework", ["starlette", "fastapi", "aiohttp"])
def test_a_framework_that_is_missing_is_named_with_what_to_install(framework: str) -> None:
    program = (
        f"import sys; sys.modules[{framework!r}] = None\n"
        "import aiokprod.integrations.running\n"
        "assert not {'starlette', 'fastapi', 'aiohttp'} & {name for name in sys.modules if sys.modules[name]}\n"
        f"import aiokprod.integrations.{framework}"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    last = ended.stderr.splitlines()[-1]
    assert last == f"ModuleNotFoundError: aiokprod.integrations.{framework} needs: pip install {framework}"
