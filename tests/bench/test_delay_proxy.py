"""bench/delay_proxy.py: bytes arrive whole, in order, and later."""

from __future__ import annotations

import asyncio
import contextlib

from delay_proxy import FrontEnd

ONE_WAY_S = 0.02


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.closing(writer):
        while data := await reader.read(65_536):
            writer.write(data)


def test_a_round_trip_takes_twice_the_delay_and_loses_nothing() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        behind = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = behind.sockets[0].getsockname()[1]
        front = await loop.create_server(lambda: FrontEnd(ONE_WAY_S, port), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*front.sockets[0].getsockname()[:2])
        began = loop.time()
        sent = bytes(range(256)) * 4_000
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        assert loop.time() - began >= 2 * ONE_WAY_S - 0.001
        writer.close()
        assert await reader.read() == b""
        front.close()
        behind.close()
        await front.wait_closed()

    asyncio.run(asyncio.wait_for(scenario(), 10))
