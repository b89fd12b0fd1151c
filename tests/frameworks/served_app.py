"""Applications that a server runs in a process of its own: what they took must survive a SIGTERM.

POST /orders/<first>/<count> sends that many numbered records without waiting for any, and answers at once.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from aiokprod import Producer

CLOSE_S = float(os.environ.get("SERVED_APP_CLOSE_S", "30"))

# Built when the module is imported: before the event loop, and under `gunicorn --preload` before the fork.
producer = Producer(
    os.environ["SERVED_APP_BOOTSTRAP"],
    linger_ms=float(os.environ.get("SERVED_APP_LINGER_MS", "5")),
    delivery_timeout_ms=900_000,
)


@asynccontextmanager
async def living() -> AsyncIterator[None]:
    await producer.start()
    try:
        yield
    finally:
        report = await producer.close(timeout=CLOSE_S)
        print(f"undelivered: {report.count}", file=sys.stderr, flush=True)


def send(first: int, count: int) -> dict[str, int]:
    for number in range(first, first + count):
        producer.send("orders", b"%d" % number)
    return {"pid": os.getpid(), "sent": count}


# ---------------------------------------------------------------------- Starlette: for uvicorn and gunicorn
@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with living():
        yield


async def starlette_orders(request: Request) -> JSONResponse:
    return JSONResponse(send(request.path_params["first"], request.path_params["count"]))


app = Starlette(
    routes=[Route("/orders/{first:int}/{count:int}", starlette_orders, methods=["POST"])], lifespan=lifespan
)


# ---------------------------------------------------------------------- aiohttp: serves itself
async def kafka(_: web.Application) -> AsyncIterator[None]:
    async with living():
        yield


async def aiohttp_orders(request: web.Request) -> web.Response:
    return web.json_response(send(int(request.match_info["first"]), int(request.match_info["count"])))


if __name__ == "__main__":
    aiohttp_app = web.Application()
    aiohttp_app.cleanup_ctx.append(kafka)
    aiohttp_app.router.add_post("/orders/{first}/{count}", aiohttp_orders)
    web.run_app(aiohttp_app, sock=socket.socket(fileno=int(sys.argv[1])), print=None)
