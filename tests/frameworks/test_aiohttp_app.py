"""A producer inside aiohttp: `cleanup_ctx` starts it and delivers what is left at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from aiokprod import Producer
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster

PRODUCER = web.AppKey("producer", Producer)


def application(bootstrap_servers: str, linger_ms: float = 5) -> web.Application:
    async def kafka(app: web.Application) -> AsyncIterator[None]:
        async with Producer(bootstrap_servers, linger_ms=linger_ms) as producer:
            app[PRODUCER] = producer
            yield

    async def now(request: web.Request) -> web.Response:
        metadata = await request.app[PRODUCER].send("orders", await request.read())
        return web.json_response({"offset": metadata.offset})

    async def later(request: web.Request) -> web.Response:
        request.app[PRODUCER].send("orders", await request.read())
        return web.json_response({})

    app = web.Application()
    app.cleanup_ctx.append(kafka)
    app.router.add_post("/now", now)
    app.router.add_post("/later", later)
    return app


def test_cleanup_ctx_owns_the_producer() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("orders")
            app = application(cluster.bootstrap_servers)
            async with TestClient(TestServer(app)) as client:
                answers = await asyncio.gather(*(client.post("/now", data=b"%d" % number) for number in range(20)))
                offsets = [(await answer.json())["offset"] for answer in answers]
            assert sorted(offsets) == list(range(20))
            assert app[PRODUCER].health().state is ProducerState.CLOSED
            assert len(cluster.records("orders")) == 20

    asyncio.run(scenario())


def test_the_end_of_the_application_delivers_what_lingers() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("orders")
            async with TestClient(TestServer(application(cluster.bootstrap_servers, linger_ms=600_000))) as client:
                for number in range(20):
                    await (await client.post("/later", data=b"%d" % number)).read()
                assert cluster.records("orders") == []
            assert [record.value for record in cluster.records("orders")] == [b"%d" % n for n in range(20)]

    asyncio.run(scenario())


def test_a_client_that_hangs_up_takes_no_record_with_it() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("orders")
            async with TestClient(TestServer(application(cluster.bootstrap_servers))) as client:
                await (await client.post("/now", data=b"first")).read()
                held = cluster.hold("Produce")
                impatient = asyncio.create_task(client.post("/now", data=b"second"))
                while not held.hits:
                    await asyncio.sleep(0.002)
                impatient.cancel()
                await asyncio.gather(impatient, return_exceptions=True)
                cluster.release(held)
                await (await client.post("/now", data=b"third")).read()
            assert [record.value for record in cluster.records("orders")] == [b"first", b"second", b"third"]

    asyncio.run(scenario())
