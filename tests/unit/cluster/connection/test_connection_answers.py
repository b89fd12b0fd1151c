"""Requests, answers and chasers of one connection, in order, on both loops."""

from __future__ import annotations

import asyncio

from both_loops import Run, both_loops
from connected import PRODUCE, Recorder, connected, echo, send
from scripted_broker import Peer, eventually, idle

from aiokprod.cluster.connection.connection import BrokerConnection


@both_loops
def test_answers_come_back_with_their_tokens_in_order(run: Run) -> None:
    async def scenario() -> None:
        recorder = Recorder()
        async with connected(echo, listener=recorder) as connection:
            for token in range(20):
                send(connection, token, b"body %d" % token)
            assert connection.in_flight == 20
            assert connection.idle_since is None
            await eventually(lambda: len(recorder.events) == 20)
            assert recorder.events == [("answered", token, b"body %d" % token) for token in range(20)]
            assert connection.in_flight == 0
            assert connection.idle_since == connection.last_used

    run(scenario())


@both_loops
def test_one_byte_segments_are_put_together(run: Run) -> None:  # faults: N11
    async def drip(peer: Peer) -> None:
        request = await peer.request()
        for byte in peer.frame(request, b"slow"):
            peer.send(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        await idle(peer)

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(drip, listener=recorder) as connection:
            send(connection, "a")
            await eventually(lambda: bool(recorder.events))
            assert recorder.events == [("answered", "a", b"slow")]

    run(scenario())


@both_loops
def test_a_thousand_answers_in_one_segment_are_told_apart(run: Run) -> None:  # faults: N11
    async def all_at_once(peer: Peer) -> None:
        requests = [await peer.request() for _ in range(1000)]
        peer.send(b"".join(peer.frame(request, b"x") for request in requests))
        await idle(peer)

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(all_at_once, listener=recorder) as connection:
            for token in range(1000):
                send(connection, token)
            await eventually(lambda: len(recorder.events) == 1000)
            assert recorder.answers == list(range(1000))

    run(scenario())


@both_loops
def test_buffers_may_be_changed_as_soon_as_send_returns(run: Run) -> None:  # faults: M11
    async def scenario() -> None:
        recorder = Recorder()
        async with connected(echo, listener=recorder) as connection:
            body = bytearray(b"1" * 5_000_000)
            connection.send(PRODUCE, 9, (body,), "a", timeout_s=30.0)
            body[:] = b"2" * len(body)
            await eventually(lambda: bool(recorder.answers))
            assert recorder.events[-1] == ("answered", "a", b"1" * 5_000_000)

    run(scenario())


@both_loops
def test_of_a_request_without_an_answer_nothing_more_is_heard(run: Run) -> None:  # faults: P26
    received: list[bytes] = []

    async def silent(peer: Peer) -> None:
        while True:
            received.append(bytes((await peer.request()).body))

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(silent, listener=recorder) as connection:
            for token in "ab":
                connection.send(PRODUCE, 9, (token.encode(),), token, timeout_s=30.0, expects_answer=False)
            assert connection.in_flight == 0
            await eventually(lambda: received == [b"a", b"b"])
            # a listener that was told from within `send` would write the next one there, one deeper for each.
            assert recorder.events == []
            assert connection.in_flight == 0

    run(scenario())


@both_loops
def test_a_listener_may_send_from_inside_an_answer(run: Run) -> None:
    class Relay(Recorder):
        def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
            super().answered(connection, token, body, version)
            assert isinstance(token, int)
            if token < 5:
                send(connection, token + 1)

    async def scenario() -> None:
        relay = Relay()
        async with connected(echo, listener=relay) as connection:
            send(connection, 0)
            await eventually(lambda: len(relay.events) == 6)
            assert relay.answers == [0, 1, 2, 3, 4, 5]

    run(scenario())


@both_loops
def test_a_chaser_returns_behind_what_was_sent_before_it(run: Run) -> None:
    async def scenario() -> None:
        recorder = Recorder()
        async with connected(echo, listener=recorder) as connection:
            connection.chase("at once")
            assert recorder.events == [("chaser", "at once")]
            send(connection, "a")
            connection.chase("m")
            send(connection, "b")
            connection.chase("n")
            await eventually(lambda: len(recorder.events) == 5)
            assert recorder.answers == ["at once", "a", "m", "b", "n"]

    run(scenario())


@both_loops
def test_a_chaser_put_from_inside_an_answer_comes_after_the_answers_of_the_same_segment(run: Run) -> None:
    class Chasing(Recorder):
        def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
            super().answered(connection, token, body, version)
            if token == "a":
                connection.chase("m")

    async def both(peer: Peer) -> None:
        requests = [await peer.request(), await peer.request()]
        peer.send(b"".join(peer.frame(request, b"") for request in requests))
        await idle(peer)

    async def scenario() -> None:
        chasing = Chasing()
        async with connected(both, listener=chasing) as connection:
            send(connection, "a")
            send(connection, "b")
            await eventually(lambda: len(chasing.events) == 3)
            assert chasing.answers == ["a", "b", "m"]

    run(scenario())
