"""Timeouts, slow readers and throttles of a connection; its control requests."""

from __future__ import annotations

import asyncio
import time

import pytest
from both_loops import Run, both_loops
from connected import PRODUCE, VERSIONS, Recorder, connected, echo, send
from scripted_broker import Peer, ScriptedBroker, eventually, idle, turns

from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.errors import ConnectionLostError, ProtocolError, RequestTimeoutError
from aiokprod.logs import StateLog
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse


@both_loops
def test_a_timed_out_request_ends_the_connection_and_late_answers_reach_no_caller(run: Run) -> None:  # faults: N4, N10
    lost, hung_up = asyncio.Event(), asyncio.Event()

    async def late(peer: Peer) -> None:
        request = await peer.request()
        await lost.wait()
        peer.answer(request, b"late")
        assert await peer.hung_up()
        hung_up.set()

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(late, listener=recorder) as connection:
            send(connection, "a", timeout_s=0.05)
            await eventually(lambda: bool(recorder.losses))
            lost.set()
            ((_, tokens, cause),) = recorder.events
            assert tokens == [("a", True)]
            assert isinstance(cause, RequestTimeoutError)
            assert "no answer to api 0" in str(cause)
            await hung_up.wait()  # behind the late answer
            await turns()
            assert len(recorder.events) == 1

    run(scenario())


@both_loops
def test_an_answer_that_drips_has_one_timeout_for_the_whole(run: Run) -> None:  # faults: N6, H3
    recorder = Recorder()

    async def drip(peer: Peer) -> None:
        frame = peer.frame(await peer.request(), bytes(1_000_000))
        for byte in frame:
            if recorder.losses:
                break
            peer.send(bytes([byte]))
            await asyncio.sleep(0)  # a byte on each turn of the loop: there is always one on its way

    async def scenario() -> None:
        async with connected(drip, listener=recorder) as connection:
            send(connection, "a", timeout_s=0.1)
            await eventually(lambda: bool(recorder.losses), within_s=1.0)
            assert isinstance(connection.cause, RequestTimeoutError)

    run(scenario())


@both_loops
def test_a_half_written_request_ends_with_its_connection(run: Run) -> None:  # faults: N10, N5
    async def never_read(peer: Peer) -> None:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(never_read, listener=recorder) as connection:
            send(connection, "a", bytes(20_000_000), timeout_s=0.1)
            assert not connection.is_writable
            assert connection.is_open
            await eventually(lambda: bool(recorder.losses))
            assert recorder.losses[0][1] == [("a", True)]
            await connection.wait_closed()

    run(scenario())


@both_loops
def test_a_slow_reader_pauses_us_and_wakes_us(run: Run) -> None:  # faults: N5
    go = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await go.wait()
        await echo(peer)

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(slow, listener=recorder) as connection:
            while connection.is_writable:
                send(connection, "a", bytes(1_000_000))
            assert ("writable",) not in recorder.events
            go.set()
            await eventually(lambda: ("writable",) in recorder.events)
            assert connection.is_writable

    run(scenario())


@both_loops
def test_answers_in_the_socket_are_read_before_a_timeout_is_judged(run: Run) -> None:  # faults: N20, L22
    async def scenario() -> None:
        recorder = Recorder()
        async with connected(echo, listener=recorder) as connection:
            for token in range(5):
                send(connection, token, timeout_s=0.2)
            await eventually(lambda: len(recorder.events) == 5)
            for token in range(5, 10):
                send(connection, token, timeout_s=0.2)
            time.sleep(0.6)  # the loop stands still
            await eventually(lambda: len(recorder.events) == 10)
            assert recorder.answers == list(range(10))
            assert connection.is_open

    run(scenario())


@both_loops
def test_a_throttle_stops_writing_and_ends_by_itself(run: Run) -> None:
    async def scenario() -> None:
        recorder = Recorder()
        async with connected(idle, listener=recorder) as connection:
            # Half a second apart: on a busy machine the loop stands still for a tenth, and then both are due at once.
            send(connection, "a", timeout_s=0.5)
            connection.mute(1.0)
            assert not connection.is_writable
            assert connection.is_open
            await eventually(lambda: bool(recorder.events))
            assert recorder.events[0] == ("writable",)  # no timeout before it (faults: P25)
            await eventually(lambda: bool(recorder.losses))

    run(scenario())


@both_loops
def test_a_hostile_throttle_is_clamped(run: Run) -> None:  # faults: H18
    async def scenario() -> None:
        recorder = Recorder()
        async with connected(idle, listener=recorder, max_mute_s=0.05) as connection:
            connection.mute(-1.0)
            assert connection.is_writable
            connection.mute(2**31 / 1000)
            assert connection.muted_until < asyncio.get_running_loop().time() + 0.1
            await eventually(lambda: recorder.events == [("writable",)])

    run(scenario())


@both_loops
def test_a_retiring_connection_takes_nothing_new_and_finishes_the_old(run: Run) -> None:
    async def scenario() -> None:
        recorder = Recorder()
        async with connected(echo, listener=recorder) as connection:
            send(connection, "a")
            connection.retire()
            assert not connection.is_writable
            assert connection.is_open
            await eventually(lambda: recorder.answers == ["a"])

    run(scenario())


async def metadata_broker(peer: Peer) -> None:
    while True:
        request = await peer.request()
        assert request.api_key == MetadataRequest.API_KEY
        answer = MetadataResponse(cluster_id="c", throttle_time_ms=30)
        peer.answer(request, answer.encode(request.version))


@both_loops
def test_a_control_request_returns_its_decoded_answer(run: Run) -> None:
    async def scenario() -> None:
        recorder = Recorder()
        async with connected(metadata_broker, listener=recorder) as connection:
            answer: MetadataResponse = await connection.request(MetadataRequest(), timeout_s=5.0)
            assert answer.cluster_id == "c"
            assert not connection.is_writable  # its throttle is obeyed
            assert recorder.events == []
            await connection.request(MetadataRequest(), timeout_s=5.0, version=5)  # waits for the end of it
            assert recorder.events == [("writable",)]

    run(scenario())


@both_loops
def test_a_control_request_fails_with_its_connection(run: Run) -> None:
    async def scenario() -> None:
        async with connected(idle) as connection:
            one = asyncio.ensure_future(connection.request(MetadataRequest(), timeout_s=0.05))
            two = asyncio.ensure_future(connection.request(MetadataRequest(), timeout_s=0.05))
            errors = await asyncio.gather(one, two, return_exceptions=True)
            assert all(isinstance(error, RequestTimeoutError) for error in errors)
            assert errors[0] is not errors[1]
            with pytest.raises(ConnectionLostError):
                await connection.request(MetadataRequest(), timeout_s=0.05)

    run(scenario())


@both_loops
def test_closing_wakes_control_requests_that_wait_for_a_throttle(run: Run) -> None:
    async def scenario() -> None:
        async with connected(idle) as connection:
            connection.mute(20.0)
            waiting = asyncio.ensure_future(connection.request(MetadataRequest(), timeout_s=0.05))
            await asyncio.sleep(0)
            connection.close(ConnectionLostError("enough"))
            with pytest.raises(ConnectionLostError, match="enough"):
                await waiting

    run(scenario())


@both_loops
def test_a_cancelled_control_request_leaves_the_others_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with connected(metadata_broker) as connection:
            cancelled = asyncio.ensure_future(connection.request(MetadataRequest(), timeout_s=5.0))
            await asyncio.sleep(0)
            cancelled.cancel()
            answer: MetadataResponse = await connection.request(MetadataRequest(), timeout_s=5.0)
            assert answer.cluster_id == "c"
            assert cancelled.cancelled()

    run(scenario())


@both_loops
def test_an_answer_that_cannot_be_read_closes(run: Run) -> None:  # faults: H22
    async def trailing(peer: Peer) -> None:
        request = await peer.request()
        peer.answer(request, MetadataResponse().encode(request.version) + b"!")
        await idle(peer)

    async def scenario() -> None:
        async with connected(trailing) as connection:
            with pytest.raises(ProtocolError):
                await connection.request(MetadataRequest(), timeout_s=5.0)
            assert isinstance(connection.cause, ProtocolError)

    run(scenario())


@both_loops
def test_a_callback_that_fails_does_not_keep_the_loss_from_the_listener(run: Run) -> None:
    def fail(connection: BrokerConnection, cause: Exception) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(idle, listener=recorder) as connection:
            connection.add_close_callback(fail)
            send(connection, "a")
            with pytest.raises(ZeroDivisionError):
                connection.close(ConnectionLostError("enough"))
            assert recorder.losses[0][1] == [("a", True)]

    run(scenario())


@both_loops
def test_a_connection_that_ended_with_its_last_answer_is_not_called_open(run: Run) -> None:
    async def scenario() -> None:
        async with connected(idle) as connection:
            connection.close(ConnectionLostError("it hung up"))
            with pytest.raises(ConnectionLostError, match="hung up"):
                connection.established(VERSIONS, 1000)
            assert "CLOSED" in repr(connection)

    run(scenario())


@both_loops
def test_a_dial_that_ends_after_the_close_leaves_no_socket(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker(idle) as broker:
            loop = asyncio.get_running_loop()
            connection = BrokerConnection(
                node_id=3, host="127.0.0.1", port=broker.port, client_id="tests", max_frame_bytes=1000, max_mute_s=1.0,
                loop=loop, log=StateLog("connection to a script"),
            )  # fmt: skip
            connection.close(ConnectionLostError("too late"))
            assert connection.has_ended
            transport, _ = await loop.create_connection(lambda: connection, "127.0.0.1", broker.port)
            assert transport.is_closing()
            assert not connection.is_open
            await turns()

    run(scenario())


@both_loops
def test_bytes_that_nothing_waits_for_leave_before_the_end(run: Run) -> None:
    received: list[bytes] = []

    async def silent(peer: Peer) -> None:
        while True:
            received.append(bytes((await peer.request()).body))

    async def scenario() -> None:
        async with connected(silent, listener=Recorder()) as connection:
            for _ in range(20):
                connection.send(PRODUCE, 9, (bytes(200_000),), "a", timeout_s=30.0, expects_answer=False)
            connection.close(ConnectionLostError("enough"))
            await connection.wait_closed()
            await eventually(lambda: len(received) == 20)

    run(scenario())


@both_loops
def test_a_peer_that_never_reads_cannot_hold_a_closed_connection(run: Run) -> None:
    async def never_read(peer: Peer) -> None:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async def scenario() -> None:
        async with connected(never_read, listener=Recorder()) as connection:
            connection.send(PRODUCE, 9, (bytes(20_000_000),), "a", timeout_s=30.0, expects_answer=False)
            connection.close(ConnectionLostError("enough"))
            async with asyncio.timeout(20.0):
                await connection.wait_closed()

    run(scenario())


def test_it_shows_its_state() -> None:
    async def scenario() -> None:
        async with connected(idle, listener=Recorder()) as connection:
            send(connection, "a")
            connection.mute(5.0)
            assert repr(connection) == (f"<BrokerConnection 3 127.0.0.1:{connection.port} OPEN, muted in_flight=1>")

    asyncio.run(scenario())
