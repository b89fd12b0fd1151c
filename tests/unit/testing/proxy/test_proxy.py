"""`FaultProxy` between a client of ours and a broker that answers every request with its own bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from aiokprod.testing.faults import Blackhole, Close, Delay, Drop, Effect, Fault, Rechunk, Swallow, Truncate
from aiokprod.testing.faults.apis import FLEXIBLE_FROM, NEVER, api_key_of
from aiokprod.testing.proxy import FaultProxy
from aiokprod.testing.proxy.frames import expects_answer
from aiokprod.wire.frames import encode_request_header
from aiokprod.wire.messages import sasl_handshake
from aiokprod.wire.messages.metadata import MetadataRequest
from aiokprod.wire.messages.produce import ProduceRequest

METADATA = 3
PRODUCE = 0
WAIT_S = 60.0


class EchoBroker:
    """A broker that answers each frame with its correlation id and its rest, and a Produce with acks=0 with nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.received: list[bytes] = []
        self.ended = threading.Semaphore(0)
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def reset_all(self) -> None:
        for connection in self._connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RD)  # wakes the thread, which closes it

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while prefix := receive(connection, 4):
                frame = receive(connection, struct.unpack(">i", prefix)[0])
                self.received.append(frame)
                key, version = struct.unpack_from(">hh", frame)
                if expects_answer(key, version, frame):
                    answer = frame[4:8] + b"echo" + frame[8:]
                    connection.sendall(struct.pack(">i", len(answer)) + answer)
        self.ended.release()


class Client:
    """A blocking Kafka-like client."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=WAIT_S)

    def send(self, correlation_id: int, key: int = METADATA, body: bytes = b"body", version: int = 1) -> None:
        frame = encode_request_header(key, version, correlation_id, "test", False) + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def answer(self) -> tuple[int, bytes]:
        (length,) = struct.unpack(">i", self.exactly(4))
        frame = self.exactly(length)
        return struct.unpack_from(">i", frame)[0], frame[4:]

    def exactly(self, count: int) -> bytes:
        data = receive(self.socket, count)
        assert len(data) == count, "the connection ended"
        return data

    def is_answered(self, correlation_id: int) -> bool:
        return self.answer()[0] == correlation_id

    def is_ended(self) -> bool:
        return self.socket.recv(1) == b""

    def is_silent(self) -> bool:
        self.socket.settimeout(0.1)
        try:
            self.socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(WAIT_S)
        return False


def is_reset(address: tuple[str, int]) -> bool:
    """Dial; the reset may come while the connection is still being made."""
    try:
        with Client(address).socket as dialled:
            dialled.recv(1)
    except ConnectionResetError:
        return True
    return False


def receive(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (part := source.recv(count - len(data))):
        data += part
    return data


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.005)


@pytest.fixture
def broker() -> Iterator[EchoBroker]:
    echo = EchoBroker()
    yield echo
    echo.close()


@pytest.fixture
def proxy(broker: EchoBroker) -> Iterator[FaultProxy]:
    with FaultProxy({1: ("127.0.0.1", broker.port)}) as made:
        yield made


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    made = Client(proxy.address(1))
    # The kernel has connected; what a test scripts now must not meet the connection at the proxy's door.
    eventually(lambda: proxy.connections() == 1)
    yield made
    made.socket.close()


def test_without_rules_frames_pass_unchanged_both_ways(client: Client, broker: EchoBroker) -> None:
    client.send(1, body=b"x" * 300_000)
    client.send(2)
    assert client.answer() == (1, b"echo\0\4test" + b"x" * 300_000)
    assert client.is_answered(2)
    assert [struct.unpack_from(">i", frame, 4)[0] for frame in broker.received] == [1, 2]


def test_requests_and_connections_are_counted_per_broker(proxy: FaultProxy, client: Client) -> None:
    for number in (1, 2):
        client.send(number)
        client.answer()
    client.send(3, key=PRODUCE, body=struct.pack(">hi", -1, 0), version=2)
    client.answer()
    assert (proxy.requests_seen(), proxy.requests_seen("Metadata"), proxy.requests_seen("Produce", broker=1)) == (
        3,
        2,
        1,
    )
    assert proxy.requests_seen(broker=2) == 0
    assert proxy.connections() == proxy.connections(1) == proxy.open_connections(1) == 1
    seen = proxy.frames("Metadata", "answer")
    assert [(each.api, each.version, each.correlation_id) for each in seen] == [("Metadata", 1, 1), ("Metadata", 1, 2)]
    assert seen[0].at_s <= seen[1].at_s


def test_cut_after_lets_the_broker_act_and_drops_only_that_answer(
    proxy: FaultProxy, client: Client, broker: EchoBroker
) -> None:
    hold = proxy.hold(None, times=1)
    proxy.drop_answer(None)
    client.send(1)
    client.send(2)
    eventually(lambda: len(broker.received) == 2)
    proxy.release(hold)
    assert client.is_answered(1)
    assert client.is_ended()


def test_cut_after_a_request_that_is_never_answered_cuts_at_once(
    proxy: FaultProxy, client: Client, broker: EchoBroker
) -> None:
    proxy.drop_answer("Produce")
    client.send(1, key=PRODUCE, body=struct.pack(">hi", 0, 0), version=2)
    assert client.is_ended()
    eventually(lambda: len(broker.received) == 1)


def test_a_reset_by_the_broker_is_passed_on_as_one(client: Client, broker: EchoBroker) -> None:
    client.send(1)
    client.answer()
    broker.reset_all()
    with pytest.raises(ConnectionResetError):
        client.socket.recv(1)


def test_hold_keeps_a_frame_and_its_successors_until_released(proxy: FaultProxy, client: Client) -> None:
    held = proxy.hold(None, times=1)
    client.send(1)
    client.send(2)
    held.wait_hit()
    assert client.is_silent()
    proxy.release(held)
    assert client.is_answered(1)
    assert client.is_answered(2)


def test_a_held_request_arrives_although_its_client_has_gone(
    proxy: FaultProxy, client: Client, broker: EchoBroker
) -> None:
    held = proxy.hold(None, before_serving=True, times=1)
    client.send(7)
    held.wait_hit()
    client.socket.close()
    assert broker.received == []
    proxy.release(held)
    eventually(lambda: len(broker.received) == 1)
    assert broker.ended.acquire(timeout=WAIT_S)


def test_clear_releases_what_is_held_and_disarms_the_rest(proxy: FaultProxy, client: Client) -> None:
    held = proxy.hold(None)
    client.send(1)
    held.wait_hit()
    proxy.clear_faults()
    assert client.is_answered(1)
    client.send(2)
    assert client.is_answered(2)
    assert held.hits == 1


def test_the_proxy_can_answer_itself_in_the_order_of_requests(
    proxy: FaultProxy, client: Client, broker: EchoBroker
) -> None:
    held = proxy.hold(None, times=1)
    own = proxy.answer_with(None, lambda request, version: b"mine")
    client.send(1)
    held.wait_hit()  # else the hold may meet the proxy's own answer first
    client.send(2, version=9)
    own.wait_hit()
    assert client.is_silent()  # the first answer is still to come
    proxy.release(held)
    assert client.is_answered(1)
    assert client.answer() == (2, b"\0mine")  # version 9 has a tagged header
    assert len(broker.received) == 1


def test_a_dead_broker_resets_the_client(broker: EchoBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with FaultProxy({1: ("127.0.0.1", port)}) as proxy:
        assert is_reset(proxy.address(1))


def test_faults_of_another_broker_api_or_topic_do_nothing(proxy: FaultProxy, client: Client) -> None:
    rules = [
        proxy.drop_answer(None, broker=2),
        proxy.drop_answer("Produce"),
        proxy.drop_answer(None, topic="other"),
        proxy.refuse_next(1),
    ]
    client.send(1)
    assert client.is_answered(1)
    assert [rule.hits for rule in rules] == [0, 0, 0, 0]


def test_a_removed_rule_acts_no_more(proxy: FaultProxy, client: Client) -> None:
    rule = proxy.drop_answer(None, after_append=False, times=None)
    rule.cancel()
    client.send(1)
    assert client.is_answered(1)
    with pytest.raises(TimeoutError, match="0 of 1 hits"):
        rule.wait_hit(timeout_s=0.01)


def test_a_stream_that_is_not_kafka_passes_as_it_comes(proxy: FaultProxy, client: Client, broker: EchoBroker) -> None:
    client.socket.sendall(b"\x16\x03\x01\x02\x00hello")
    eventually(lambda: proxy.requests_seen() > 0)
    assert proxy.frames()[0].api is None


def test_an_encrypted_stream_can_be_cut_by_its_chunks(broker: EchoBroker) -> None:
    with FaultProxy({1: ("127.0.0.1", broker.port)}, framed=False) as proxy:
        proxy.add_fault(Fault(effect=Drop(), nth=2))
        client = Client(proxy.address(1))
        with client.socket:
            client.send(1)
            assert client.is_answered(1)
            client.send(2)
            assert client.is_ended()


@pytest.mark.parametrize(
    ("effect", "before_serving", "seen"),
    [
        (Swallow(), True, "silence, answer 2"),
        (Swallow(), False, "silence, answer 2"),
        (Blackhole(), True, "silence, silence"),
        (Blackhole(), False, "silence, silence"),
        (Delay(0.01), False, "answer 1, answer 2"),
        (Rechunk(3), True, "answer 1, answer 2"),
        (Close(), False, "answer 1, end"),
        (Truncate(0), False, "end"),
    ],
    ids=repr,
)
def test_faults_of_chunks_of_an_encrypted_stream(
    broker: EchoBroker, effect: Effect, before_serving: bool, seen: str
) -> None:
    with FaultProxy({1: ("127.0.0.1", broker.port)}, framed=False) as proxy:
        rule = proxy.add_fault(Fault(effect=effect, before_serving=before_serving))
        client = Client(proxy.address(1))
        with client.socket:
            for number, expected in enumerate(seen.split(", "), 1):
                if expected == "end":
                    if number == 1:
                        client.send(number)
                    assert client.is_ended()
                else:
                    client.send(number)
                    assert client.is_silent() if expected == "silence" else client.is_answered(number)
                    eventually(lambda: rule.hits > 0)  # two requests that the proxy reads at once are one chunk


def test_a_fault_that_names_an_api_meets_no_chunk(broker: EchoBroker) -> None:
    with FaultProxy({1: ("127.0.0.1", broker.port)}, framed=False) as proxy:
        rules = [proxy.drop_answer("Metadata"), proxy.drop_answer(None, topic="t"), proxy.corrupt_next(None)]
        client = Client(proxy.address(1))
        with client.socket:
            client.send(1)
            assert client.is_answered(1)
        assert [rule.hits for rule in rules] == [0, 0, 0]


def test_an_api_without_codec_is_late_or_lost_but_does_not_fail(proxy: FaultProxy, client: Client) -> None:
    failing = proxy.fail_next("OffsetForLeaderEpoch", 27, times=None)
    changed = proxy.rewrite_answer("OffsetForLeaderEpoch", lambda answer, version: None)
    seen: list[object] = []
    client.send(1, key=23)
    assert client.is_answered(1)
    proxy.answer_with("OffsetForLeaderEpoch", lambda request, version: seen.append(request) or b"mine")
    client.send(2, key=23)
    assert client.answer() == (2, b"mine")
    assert isinstance(seen[0], bytes) and seen[0].endswith(b"body")
    proxy.swallow_next("OffsetForLeaderEpoch")
    client.send(3, key=23)
    client.send(4, key=23)
    assert client.is_answered(4)
    assert (failing.hits, changed.hits) == (0, 1)


def test_what_no_answer_can_be_made_of_is_a_mistake_of_the_test(proxy: FaultProxy, client: Client) -> None:
    proxy.answer_with("Metadata", lambda request, version: 5)
    client.send(1)
    assert client.is_ended()
    (crash,) = proxy.crashes
    assert isinstance(crash, TypeError) and "returned int" in str(crash)


def test_a_client_that_resets_its_connection_is_gone_for_the_broker_too(
    proxy: FaultProxy, client: Client, broker: EchoBroker
) -> None:
    client.send(1)
    client.answer()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()
    assert broker.ended.acquire(timeout=WAIT_S)
    eventually(lambda: proxy.open_connections() == 0)


def test_closing_the_proxy_ends_its_connections_and_its_thread(proxy: FaultProxy, client: Client) -> None:
    proxy.hold(None, before_serving=True, times=1)
    client.send(1)
    eventually(lambda: proxy.requests_seen() == 1)
    proxy.close()
    proxy.close()
    assert not any(thread.name == "kafka-fault-proxy" for thread in threading.enumerate())
    assert proxy.close_connections() == 0


def test_a_taken_port_is_an_error_of_start(broker: EchoBroker) -> None:
    with pytest.raises(OSError, match="in use"):
        FaultProxy({1: ("127.0.0.1", 1)}, ports={1: broker.port}).start()


def test_a_taken_port_leaves_none_of_the_others_taken(broker: EchoBroker) -> None:
    proxy = FaultProxy({1: ("127.0.0.1", 1), 2: ("127.0.0.1", 1)}, ports={2: broker.port})
    with pytest.raises(OSError, match="in use"):
        proxy.start()
    with pytest.raises(ConnectionRefusedError):
        Client(proxy.address(1))
    assert not any(thread.name == "kafka-fault-proxy" for thread in threading.enumerate())

    async def on_this_loop() -> None:
        with pytest.raises(OSError, match="in use"):
            async with proxy:
                pass
        proxy.refuse_connections(1)

    asyncio.run(on_this_loop())
    with pytest.raises(ConnectionRefusedError):
        Client(proxy.address(1))


def test_what_is_refused_in_the_turn_in_which_it_was_allowed_stays_refused(broker: EchoBroker) -> None:
    async def scenario() -> None:
        async with FaultProxy({1: ("127.0.0.1", broker.port)}) as proxy:
            proxy.refuse_connections(1)
            for _ in range(3):
                await asyncio.sleep(0)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*proxy.address(1))
            proxy.allow_connections(1)
            proxy.allow_connections(1)
            _, writer = await asyncio.open_connection(*proxy.address(1))
            writer.close()

    asyncio.run(scenario())


def test_names_and_flexible_versions_are_those_of_the_generated_messages() -> None:
    for request in (MetadataRequest, ProduceRequest, sasl_handshake.SaslHandshakeRequest):
        assert api_key_of(request.__name__.removesuffix("Request")) == request.API_KEY
        assert FLEXIBLE_FROM[request.API_KEY] == request.FLEXIBLE_FROM
    assert sasl_handshake.SaslHandshakeRequest.FLEXIBLE_FROM == NEVER


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize(("acks", "answered"), [(0, False), (1, True), (-1, True)])
def test_a_produce_request_without_acks_is_known_to_stay_unanswered(version: int, acks: int, answered: bool) -> None:
    request = ProduceRequest(acks=acks, transactional_id="t")
    flexible = version >= request.FLEXIBLE_FROM
    payload = encode_request_header(0, version, 1, "test", flexible) + request.encode(version)
    assert expects_answer(0, version, payload) is answered


def test_what_cannot_be_read_is_taken_to_be_answered() -> None:
    assert expects_answer(0, 9, b"\0\0\0\x09\0\0\0\1")
