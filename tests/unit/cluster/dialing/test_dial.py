"""One dial alone: what can fail in it, and that a failed one touches nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from both_loops import Run, both_loops
from handshakes import tls_settings

from aiokprod.cluster.dialing import dial as dial_module
from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.dialing.dial import _probes, dial, dial_by
from aiokprod.cluster.dialing.dns import Address
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ConnectionLostError, TlsError

DEFAULT: dict[str, Any] = {"send_buffer_bytes": -1, "receive_buffer_bytes": -1}
DIALS = 50
ROUNDS = 40  # before the mend one in a hundred dials closed what was another's


class OwnError(Exception):
    """An error of a proxy library, say."""


class Resetting:
    """A listener, in a thread of its own, that accepts and answers each connection with RST."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=DIALS)
        self.port = int(self._listener.getsockname()[1])
        self._is_over = False
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Resetting:
        self._thread.start()
        return self

    def _serve(self) -> None:
        while not self._is_over:
            accepted, _ = self._listener.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()
        self._listener.close()


def at(port: int) -> Address:
    return Address(socket.AF_INET, ("127.0.0.1", port))


async def dialled(address: Address, **options: Any) -> AiokprodError:
    """Return the error of a dial that must fail."""
    with pytest.raises(AiokprodError) as raised:
        await dial("127.0.0.1", address.port, address, None, asyncio.Protocol, **{**DEFAULT, **options})
    return raised.value


class OtherPart:
    """Another part of the process: it opens files and looks whether they are still its own."""

    def __init__(self) -> None:
        self.opened = 0
        self.lost: list[int] = []

    async def work(self) -> None:
        while True:
            mine = []
            for _ in range(5):
                descriptor = os.memfd_create("mine")
                mine.append((descriptor, os.fstat(descriptor)))
                await asyncio.sleep(0)
            self.opened += len(mine)
            for descriptor, made in mine:
                if self._is_there(descriptor, made):
                    os.close(descriptor)
                else:
                    self.lost.append(descriptor)

    @staticmethod
    def _is_there(descriptor: int, made: os.stat_result) -> bool:
        try:
            return os.fstat(descriptor) == made
        except OSError:
            return False


@both_loops
@pytest.mark.parametrize(("tls", "rounds"), [(True, ROUNDS), (False, 3)], ids=["tls", "plaintext"])
def test_a_failed_dial_closes_no_descriptor_but_its_own(run: Run, tls: bool, rounds: int) -> None:  # faults: S21
    """A descriptor that is closed twice is, the second time, that of another part of the process."""
    context = tls_settings().ssl_context if tls else None
    other = OtherPart()

    async def one(address: Address) -> None:
        with contextlib.suppress(ConnectionLostError, TlsError):
            await dial("127.0.0.1", address.port, address, context, asyncio.Protocol, **DEFAULT)

    async def scenario() -> None:
        with Resetting() as peer:
            working = asyncio.create_task(other.work())
            for _ in range(rounds):
                await asyncio.gather(*(one(at(peer.port)) for _ in range(DIALS)))
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    run(scenario())
    assert other.opened
    assert not other.lost


@both_loops
@pytest.mark.parametrize(("host", "where"), [("kafka.example", " to 127.0.0.1:{port}"), ("127.0.0.1", "")])
def test_an_address_is_told_where_it_is_not_the_name(run: Run, host: str, where: str) -> None:  # faults: N16
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        with pytest.raises(ConnectionLostError) as raised:
            await dial(host, port, at(port), None, asyncio.Protocol, **DEFAULT)
        assert raised.value.message == f"{host}:{port}: cannot connect{where.format(port=port)}: Connection refused"

    run(scenario())


# ---------------------------------------------------------------------- what this machine refuses


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_one = os.open(os.devnull, os.O_RDONLY)
    os.close(next_one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@both_loops
def test_a_machine_without_descriptors_fails_the_dial(run: Run) -> None:  # faults: N21
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = at(listener.getsockname()[1])
            with no_descriptor_left():
                error = await dialled(address)
            assert isinstance(error, ConnectionLostError)
            assert os.strerror(errno.EMFILE) in str(error)
            assert isinstance(error.__cause__, OSError)
            await dial("127.0.0.1", address.port, address, None, Closing, **DEFAULT)

    run(scenario())


class Closing(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


WRONG = [
    Address(socket.AF_INET6, ("127.0.0.1", 9092, 0, 0)),
    Address(socket.AF_INET, ("::1", 9092)),
    Address(socket.AF_INET, ("nul\0", 9092)),
    Address(socket.AF_INET, ("127.0.0.1", 70_000)),
    Address(socket.AF_INET, ("b\u00fc" * 100, 9092)),
]


@both_loops
@pytest.mark.parametrize("address", WRONG, ids=["v4 as v6", "v6 as v4", "nul", "port", "no address"])
def test_an_address_the_system_cannot_take_fails_the_dial(run: Run, address: Address) -> None:  # faults: N21
    async def scenario() -> None:
        assert isinstance(await dialled(address), ConnectionLostError)

    run(scenario())


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT)),
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        ValueError("embedded null byte"),
        TypeError("getsockaddrarg"),
        RuntimeError("can't start new thread"),
    ],
    ids=["no family", "no descriptor", "value", "type", "no thread"],
)
def test_what_the_loop_cannot_do_fails_the_dial(failure: BaseException) -> None:  # faults: N21
    class Loop(asyncio.SelectorEventLoop):
        async def create_connection(self, *_: Any, **__: Any) -> Any:
            raise failure

    async def scenario() -> None:
        error = await dialled(at(9092))
        assert isinstance(error, ConnectionLostError)
        assert error.__cause__ is failure
        assert "\n" not in str(error)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(scenario())


def test_buffers_that_the_system_refuses_fail_the_dial() -> None:  # faults: N21
    aborted: list[bool] = []

    class Transport(asyncio.Transport):
        def abort(self) -> None:
            aborted.append(True)

    class Loop(asyncio.SelectorEventLoop):
        async def create_connection(self, *_: Any, **__: Any) -> Any:
            closed = socket.socket()
            closed.close()
            return Transport({"socket": closed}), asyncio.Protocol()

    async def scenario() -> None:
        assert "cannot be set up" in str(await dialled(at(9092), receive_buffer_bytes=1000))
        assert aborted == [True]

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(scenario())


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("a\nb"),
        TypeError("host"),
        RuntimeError(),
        ConnectionRefusedError(),
        OwnError(),
        asyncio.CancelledError(),
    ],
)
def test_what_a_dialer_of_the_users_cannot_do_fails_the_dial(failure: Exception) -> None:  # faults: N21
    async def dialer(*_: object) -> asyncio.Transport:
        raise failure

    async def scenario() -> None:
        with pytest.raises(ConnectionLostError, match="the dialer cannot connect") as raised:
            await dial_by(dialer, "localhost", 9092, None, asyncio.Protocol)
        assert raised.value.__cause__ is failure
        assert "\n" not in str(raised.value)

    asyncio.run(scenario())


def test_a_dial_that_is_cancelled_in_a_dialer_of_the_users_is_cancelled() -> None:
    async def dialer(*_: object) -> asyncio.Transport:
        await asyncio.Event().wait()
        raise AssertionError

    async def scenario() -> None:
        dialling = asyncio.ensure_future(dial_by(dialer, "localhost", 9092, None, asyncio.Protocol))
        await asyncio.sleep(0)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling

    asyncio.run(scenario())


def test_an_address_of_one_link_names_the_link() -> None:
    assert Address(socket.AF_INET6, ("fe80::1", 9092, 0, 3)).numeric_host == "fe80::1%3"
    assert Address(socket.AF_INET6, ("fe80::1%eth0", 9092, 0, 3)).numeric_host == "fe80::1%eth0"
    assert Address(socket.AF_INET6, ("::1", 9092, 0, 0)).numeric_host == "::1"
    assert at(9092).numeric_host == "127.0.0.1"


@pytest.mark.parametrize(
    ("keepalive_s", "names", "expected"),
    [
        (None, {"TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"}, []),
        (60.0, {"TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"}, [("KEEPIDLE", 60), ("KEEPINTVL", 10), ("KEEPCNT", 6)]),
        (1.4, {"TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"}, [("KEEPIDLE", 1), ("KEEPINTVL", 1), ("KEEPCNT", 6)]),
        (60.0, {"TCP_KEEPALIVE", "TCP_KEEPINTVL"}, [("KEEPALIVE", 60), ("KEEPINTVL", 10)]),  # older macOS
        (60.0, set(), []),
    ],
)
def test_keepalive_is_set_where_the_platform_has_it(
    keepalive_s: float | None, names: set[str], expected: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Platform:
        def __init__(self) -> None:
            for name in names:
                setattr(self, name, name.removeprefix("TCP_"))

    monkeypatch.setattr(dial_module, "socket", Platform())
    assert _probes(keepalive_s) == expected


def test_the_option_says_after_how_many_seconds() -> None:
    config = ProducerConfig(bootstrap_servers="a:1")
    assert ConnectionSettings.from_config(config).keepalive_s == 60.0
    assert ConnectionSettings.from_config(config.replace(connections_keepalive_ms=-1)).keepalive_s is None
