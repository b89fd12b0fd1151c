"""One connection against a scripted broker on a real socket, on both loops."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator

import pytest
from both_loops import Run, both_loops
from scripted_broker import Peer, Script, ScriptedBroker, api_versions, eventually, idle

from aiokprod.cluster.connection import BrokerConnection, ConnectionListener
from aiokprod.errors import ConnectionLostError, ProtocolError, RequestTimeoutError
from aiokprod.logs import StateLog
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.versions import ApiVersions

PRODUCE = 0
VERSIONS = ApiVersions.from_response(api_versions())


class Recorder(ConnectionListener):
    """Writes down what it is told; may do something of its own on each answer."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.on_answer: list[object] = []

    def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
        self.events.append(("answered", token, bytes(body)))

    def chaser_returned(self, connection: BrokerConnection, token: object) -> None:
        self.events.append(("chaser", token))

    def lost(self, connection: BrokerConnection, tokens: list[tuple[object, bool]], cause: Exception) -> None:
        assert not connection.is_open
        self.events.append(("lost", tokens, cause))

    def writable(self, connection: BrokerConnection) -> None:
        assert connection.is_writable
        self.events.append(("writable",))

    @property
    def answers(self) -> list[object]:
        return [event[1] for event in self.events if event[0] in ("answered", "chaser")]

    @property
    def losses(self) -> list[tuple[object, ...]]:
        return [event for event in self.events if event[0] == "lost"]


@contextlib.asynccontextmanager
async def connected(
    *scripts: Script, listener: ConnectionListener | None = None, max_mute_s: float = 30.0
) -> AsyncIterator[BrokerConnection]:
    loop = asyncio.get_running_loop()
    async with ScriptedBroker(*scripts) as broker:
        connection = BrokerConnection(
            node_id=3,
            host="127.0.0.1",
            port=broker.port,
            client_id="tests",
            max_frame_bytes=1000,
            max_mute_s=max_mute_s,
            loop=loop,
            log=StateLog("connection to a script"),
        )
        connection.listener = listener
        await loop.create_connection(lambda: connection, "127.0.0.1", broker.port)
        connection.established(VERSIONS, 100_000_000)
        try:
            yield connection
        finally:
            connection.close(ConnectionLostError("the test is over"))
            await connection.wait_closed()


def send(connection: BrokerConnection, token: object, body: bytes = b"body", timeout_s: float = 30.0) -> None:
    connection.send(PRODUCE, 9, (body[:2], memoryview(body)[2:]), token, timeout_s=timeout_s)


async def echo(peer: Peer) -> None:
    """Answer each request with its body."""
    while True:
        request = await peer.request()
        peer.answer(request, bytes(request.body))


# -- requests and answers -----------------------------------------------------------------------------------------


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
def test_a_request_without_an_answer_is_answered_at_once(run: Run) -> None:  # faults: P26
    received: list[bytes] = []

    async def silent(peer: Peer) -> None:
        while True:
            received.append(bytes((await peer.request()).body))

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(silent, listener=recorder) as connection:
            for token in "ab":
                connection.send(PRODUCE, 9, (token.encode(),), token, timeout_s=30.0, expects_answer=False)
            assert recorder.events == [("answered", "a", b""), ("answered", "b", b"")]
            assert connection.in_flight == 0
            await eventually(lambda: received == [b"a", b"b"])

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


# -- chasers ------------------------------------------------------------------------------------------------------


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


# -- endings ------------------------------------------------------------------------------------------------------


@both_loops
def test_closing_tells_everything_owed_once_and_in_order(run: Run) -> None:
    async def scenario() -> None:
        recorder = Recorder()
        causes: list[Exception] = []
        async with connected(idle, listener=recorder) as connection:
            connection.add_close_callback(lambda _, cause: causes.append(cause))
            send(connection, "a")
            connection.chase("m")
            send(connection, "b")
            cause = ConnectionLostError("enough")
            connection.close(cause)
            assert recorder.events == [("lost", [("a", True), ("m", False), ("b", True)], cause)]
            assert causes == [cause]
            connection.close(ConnectionLostError("again"))
            await connection.wait_closed()
            assert connection.has_ended
            assert len(recorder.events) == 1
            assert connection.cause is cause
            with pytest.raises(ConnectionLostError, match="enough"):
                send(connection, "c")
            with pytest.raises(ConnectionLostError, match="enough"):
                connection.chase("n")
            assert len(recorder.events) == 1

    run(scenario())


@both_loops
def test_closing_from_inside_an_answer_loses_the_rest_but_not_that_one(run: Run) -> None:
    class Closing(Recorder):
        def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
            super().answered(connection, token, body, version)
            connection.close(ProtocolError("rubbish"))

    async def all_three(peer: Peer) -> None:
        requests = [await peer.request() for _ in range(3)]
        peer.send(b"".join(peer.frame(request, b"") for request in requests[:2]))
        await idle(peer)

    async def scenario() -> None:
        closing = Closing()
        async with connected(all_three, listener=closing) as connection:
            for token in "abc":
                send(connection, token)
            await eventually(lambda: not connection.is_open)
            (answered, lost) = closing.events
            assert answered[:2] == ("answered", "a")
            assert lost[1] == [("b", True), ("c", True)]

    run(scenario())


@both_loops
def test_a_protocol_error_of_the_listener_closes_and_loses_that_answer_too(run: Run) -> None:
    class Refusing(Recorder):
        def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
            raise ProtocolError("cannot read it")

    async def scenario() -> None:
        refusing = Refusing()
        async with connected(echo, listener=refusing) as connection:
            send(connection, "a")
            send(connection, "b")
            await eventually(lambda: not connection.is_open)
            ((_, tokens, cause),) = refusing.events
            assert tokens == [("a", True), ("b", True)]
            assert isinstance(cause, ProtocolError)

    run(scenario())


@both_loops
def test_a_bug_of_the_listener_reaches_the_loop_and_loses_nothing(run: Run) -> None:
    class Buggy(Recorder):
        def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
            raise ZeroDivisionError

    async def scenario() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        buggy = Buggy()
        async with connected(echo, listener=buggy) as connection:
            send(connection, "a")
            send(connection, "b")
            await eventually(lambda: bool(buggy.losses))
            assert buggy.losses[0][1] == [("a", True), ("b", True)]
        assert any(isinstance(error, ZeroDivisionError) for error in reported)

    run(scenario())


@both_loops
def test_the_end_of_the_stream_keeps_its_cause(run: Run) -> None:
    async def hang_up(peer: Peer) -> None:
        peer.answer(await peer.request(), b"")
        await peer.request()

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(hang_up, listener=recorder) as connection:
            send(connection, "a")
            send(connection, "b")
            await eventually(lambda: bool(recorder.losses))
            ((_, tokens, cause),) = recorder.losses
            assert tokens == [("b", True)]
            assert isinstance(cause, ConnectionLostError)
            assert (cause.host, cause.port) == ("127.0.0.1", connection.port)
            assert str(cause).startswith(f"127.0.0.1:{connection.port}: the broker closed the connection")

    run(scenario())


@both_loops
def test_an_end_at_the_first_request_suggests_sasl(run: Run) -> None:
    async def sasl_listener(peer: Peer) -> None:
        await peer.request()

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(sasl_listener, listener=recorder) as connection:
            send(connection, "a")
            await eventually(lambda: bool(recorder.losses))
            assert "SASL" in str(recorder.losses[0][2])

    run(scenario())


@both_loops
def test_a_truncated_frame_is_a_loss(run: Run) -> None:  # faults: N12
    async def truncate(peer: Peer) -> None:
        peer.send(peer.frame(await peer.request(), b"whole")[:-1])

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(truncate, listener=recorder) as connection:
            send(connection, "a")
            await eventually(lambda: bool(recorder.losses))
            ((_, tokens, cause),) = recorder.events
            assert tokens == [("a", True)]
            assert "middle of an answer" in str(cause)

    run(scenario())


@both_loops
def test_a_reset_is_a_loss_with_its_cause(run: Run) -> None:  # faults: N1
    async def reset(peer: Peer) -> None:
        await peer.request()
        peer.reset()

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(reset, listener=recorder) as connection:
            send(connection, "a")
            await eventually(lambda: bool(recorder.losses))
            cause = recorder.losses[0][2]
            assert isinstance(cause, ConnectionLostError)
            assert isinstance(cause.__cause__, ConnectionResetError)
            assert cause.__cause__.__traceback__ is None

    run(scenario())


@pytest.mark.parametrize(
    "rubbish",
    [
        struct.pack(">i", 2**31 - 1),  # faults: H1
        struct.pack(">i", 100_000_001),
        struct.pack(">i", -1),  # faults: H2
        struct.pack(">i", 0),
        struct.pack(">i", 3),
        struct.pack(">ii", 4, 77),  # faults: H8
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
@both_loops
def test_rubbish_closes_the_connection_and_loses_what_is_owed(run: Run, rubbish: bytes) -> None:
    async def talk_rubbish(peer: Peer) -> None:
        first, second = await peer.request(), await peer.request()
        peer.answer(first, b"good")
        await peer.writer.drain()
        await asyncio.sleep(0.01)  # a segment of its own
        peer.send(rubbish)
        with contextlib.suppress(ConnectionError):
            while True:  # and floods
                peer.send(bytes(65536))
                await peer.writer.drain()
        assert second

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(talk_rubbish, listener=recorder) as connection:
            send(connection, "a")
            send(connection, "b")
            await eventually(lambda: bool(recorder.losses))
            assert recorder.answers == ["a"]
            assert recorder.losses[0][1] == [("b", True)]
            assert isinstance(recorder.losses[0][2], ProtocolError)

    run(scenario())


@both_loops
def test_a_repeated_answer_settles_nobody_else(run: Run) -> None:  # faults: H8
    async def twice(peer: Peer) -> None:
        request = await peer.request()
        await peer.request()
        peer.send(peer.frame(request, b"") * 2)
        await idle(peer)

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(twice, listener=recorder) as connection:
            send(connection, "a")
            send(connection, "b")
            await eventually(lambda: bool(recorder.losses))
            assert recorder.answers == ["a"]
            assert recorder.losses[0][1] == [("b", True)]

    run(scenario())


@both_loops
def test_an_unsolicited_frame_closes(run: Run) -> None:  # faults: H8
    async def chatty(peer: Peer) -> None:
        peer.send(struct.pack(">ii", 4, 0))
        await idle(peer)

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(chatty, listener=recorder) as connection:
            await eventually(lambda: not connection.is_open)
            assert recorder.losses[0][1] == []
            assert isinstance(connection.cause, ProtocolError)

    run(scenario())


# -- time ---------------------------------------------------------------------------------------------------------


@both_loops
def test_a_timed_out_request_ends_the_connection_and_late_answers_reach_nobody(run: Run) -> None:  # faults: N4, N10
    async def late(peer: Peer) -> None:
        request = await peer.request()
        await asyncio.sleep(0.15)
        peer.answer(request, b"late")
        assert await peer.hung_up()

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(late, listener=recorder) as connection:
            send(connection, "a", timeout_s=0.05)
            await eventually(lambda: bool(recorder.losses))
            ((_, tokens, cause),) = recorder.events
            assert tokens == [("a", True)]
            assert isinstance(cause, RequestTimeoutError)
            assert "no answer to api 0" in str(cause)
            await asyncio.sleep(0.2)
            assert len(recorder.events) == 1

    run(scenario())


@both_loops
def test_an_answer_that_drips_has_one_timeout_for_the_whole(run: Run) -> None:  # faults: N6, H3
    async def drip(peer: Peer) -> None:
        frame = peer.frame(await peer.request(), bytes(500))
        for byte in frame:
            peer.send(bytes([byte]))
            await asyncio.sleep(0.005)

    async def scenario() -> None:
        recorder = Recorder()
        async with connected(drip, listener=recorder) as connection:
            send(connection, "a", timeout_s=0.1)
            await eventually(lambda: bool(recorder.losses), within_s=1.0)
            assert isinstance(connection.cause, RequestTimeoutError)

    run(scenario())


@both_loops
def test_a_half_written_request_ends_with_its_connection(run: Run) -> None:  # faults: N10, N5
    async def never_read(peer: Peer) -> None:
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(30)

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
            await asyncio.sleep(0.1)  # they are answered and read, or lie in the socket
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
            send(connection, "a", timeout_s=0.05)
            connection.mute(0.15)
            assert not connection.is_writable
            assert connection.is_open
            await asyncio.sleep(0.1)
            assert recorder.events == []  # no timeout meanwhile (faults: P25)
            await eventually(lambda: bool(recorder.events))
            assert recorder.events[0] == ("writable",)
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


# -- control requests ---------------------------------------------------------------------------------------------


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
            await asyncio.sleep(0.01)

    run(scenario())


@both_loops
def test_bytes_that_nobody_waits_for_leave_before_the_end(run: Run) -> None:
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
        await asyncio.sleep(30)

    async def scenario() -> None:
        async with connected(never_read, listener=Recorder()) as connection:
            connection.send(PRODUCE, 9, (bytes(20_000_000),), "a", timeout_s=30.0, expects_answer=False)
            connection.close(ConnectionLostError("enough"))
            async with asyncio.timeout(3.0):
                await connection.wait_closed()

    run(scenario())


def test_it_shows_its_state() -> None:
    async def scenario() -> None:
        async with connected(idle, listener=Recorder()) as connection:
            send(connection, "a")
            connection.mute(5.0)
            assert repr(connection) == (f"<BrokerConnection 3 127.0.0.1:{connection.port} OPEN, muted in_flight=1>")

    asyncio.run(scenario())
