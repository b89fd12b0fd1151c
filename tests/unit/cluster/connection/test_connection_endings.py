"""How a connection ends: everything owed is told once, in order, with the cause."""

from __future__ import annotations

import asyncio
import contextlib
import struct

import pytest
from both_loops import Run, both_loops
from connected import Recorder, connected, echo, send
from scripted_broker import Peer, eventually, idle

from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.errors import ConnectionLostError, ProtocolError


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
    answered = asyncio.Event()

    async def talk_rubbish(peer: Peer) -> None:
        first, second = await peer.request(), await peer.request()
        peer.answer(first, b"good")
        await peer.writer.drain()
        await answered.wait()  # a segment of its own
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
            await eventually(lambda: recorder.answers == ["a"])
            answered.set()
            await eventually(lambda: bool(recorder.losses))
            assert recorder.answers == ["a"]
            assert recorder.losses[0][1] == [("b", True)]
            assert isinstance(recorder.losses[0][2], ProtocolError)

    run(scenario())


@both_loops
def test_a_repeated_answer_settles_no_other_request(run: Run) -> None:  # faults: H8
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


@pytest.mark.pure("a method of a compiled class cannot be replaced")
@both_loops
def test_an_interrupt_in_the_middle_of_an_answer_ends_the_connection(run: Run) -> None:
    """A notebook's loop goes on: the answer was given to nothing, and its request waited until its records expired."""

    class Interrupted(Recorder):
        def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
            raise OutcomeOfATestError

    class OutcomeOfATestError(BaseException):
        """An interrupt, which asyncio would pass on to the test."""

    async def scenario() -> None:
        listener = Interrupted()
        async with connected(echo, listener=listener) as connection:
            send(connection, "a")
            data = []
            taken = connection._take
            connection._take = data.append  # type: ignore[method-assign, assignment]
            await eventually(lambda: bool(data))
            connection._take = taken  # type: ignore[method-assign]
            send(connection, "b")
            with pytest.raises(OutcomeOfATestError):
                connection.data_received(data[0])
            ((_, tokens, cause),) = listener.losses
            assert tokens == [("a", True), ("b", True)]
            assert "OutcomeOfATestError" in str(cause)

    run(scenario())
