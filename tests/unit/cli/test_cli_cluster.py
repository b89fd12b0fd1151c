"""`aiokprod cluster`, as a process: it answers, ends when it is told to, and serves another command."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from child_process import Child
from cli_runs import run as run_here
from click.testing import CliRunner

from aiokprod import Producer
from aiokprod.cli.cluster import SIGNALS, Waiter
from aiokprod.cli.cluster import cluster as cluster_command
from aiokprod.errors import UnknownTopicError
from aiokprod.testing.kafka_cluster.blocking import BlockingConnection

BENCH = Path(__file__).resolve().parents[3] / "bench" / "cluster_start.py"
LIMIT_S = 30.0
COMMAND = [sys.executable, "-m", "aiokprod", "cluster"]


@contextmanager
def cluster(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the process and its bootstrap servers; it must end by itself after the block."""
    with Child([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"bootstrap\.servers=(\S+)", line)
        assert found is not None, line + process.communicate()[1]
        yield process, found[1]
        process.wait(LIMIT_S)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=LIMIT_S)


def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cluster_start", BENCH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_takes_records_until_a_signal_ends_it_without_a_word(number: signal.Signals) -> None:
    async def send(servers: str) -> None:
        async with Producer(servers, max_block_ms=10_000) as producer:
            assert len(await producer.partitions_for("orders")) == 6
            assert len(await producer.partitions_for("audit")) == 1
            await producer.send("orders", b"v")
            await producer.send("made-by-writing", b"v")

    with cluster("--port", "0", "--topic", "orders:6", "--topic", "audit") as (process, servers):
        assert len(servers.split(",")) == 3
        asyncio.run(send(servers))
        process.send_signal(number)
        assert process.stdout is not None and process.stderr is not None
        output, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 0
    assert "Ctrl-C" in output and not errors


def test_the_brokers_have_the_ports_one_after_the_other_and_unknown_topics_stay_unknown() -> None:
    async def send(servers: str) -> None:
        async with Producer(servers, max_block_ms=200) as producer:
            with pytest.raises(UnknownTopicError):
                await producer.send("orders", b"v")

    with closing(_TwoPorts()) as ports:
        first = ports.first
        ports.close()
        with cluster("--brokers", "2", "--port", str(first), "--no-auto-create") as (process, servers):
            assert servers == f"127.0.0.1:{first},127.0.0.1:{first + 1}"
            asyncio.run(send(servers))
            process.terminate()


def test_a_producer_goes_on_when_the_command_is_started_again() -> None:
    async def life(first: str, arguments: list[str]) -> None:
        async with Producer(first, delivery_timeout_ms=30_000, request_timeout_ms=20_000) as old:
            assert [(await old.send("orders", b"before")).offset for _ in range(3)] == [0, 1, 2]
            process.terminate()
            await asyncio.to_thread(process.wait, LIMIT_S)
            with cluster(*arguments) as (again, servers):
                assert servers == first
                assert (await old.send("orders", b"after")).offset == 0
                async with Producer(servers) as young:  # the ids of producers that run are not given again
                    assert [(await young.send("orders", b"v")).offset for _ in range(3)] == [1, 2, 3]
                assert (await old.send("orders", b"after")).offset == 4
                assert old.health().live
                again.terminate()

    with closing(_TwoPorts()) as ports:
        arguments = ["--brokers", "1", "--port", str(ports.first), "--topic", "orders"]
        ports.close()
        with cluster(*arguments) as (process, servers):
            asyncio.run(life(servers, arguments))


class _TwoPorts:
    """Two neighbouring ports that were free a moment ago."""

    def __init__(self) -> None:
        while True:
            self._sockets = [socket.create_server(("127.0.0.1", 0))]
            self.first = int(self._sockets[0].getsockname()[1])
            try:
                self._sockets.append(socket.create_server(("127.0.0.1", self.first + 1)))
                return
            except (OSError, OverflowError):
                self._sockets[0].close()

    def close(self) -> None:
        for one in self._sockets:
            one.close()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_here(None, "cluster", "--brokers", "1", "--port", str(port))
    assert done.exit_code == 2
    assert done.stderr == (
        f"aiokprod cluster: port {port} of 127.0.0.1 is not available: Address already in use. Choose others with --port, or"
        " --port 0 for any that are free\n"
    )
    assert not done.stdout


def test_a_port_that_is_taken_after_it_was_looked_at_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiokprod.cli.cluster.check_ports", lambda ports: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_here(None, "cluster", "--brokers", "1", "--port", str(taken.getsockname()[1]))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "aiokprod cluster: one of the ports of 127.0.0.1 is not available: Address already in use."
    )


def test_a_signal_before_the_command_is_started_is_its_status() -> None:
    for number in SIGNALS:
        waiter = Waiter()
        with waiter.installed():
            signal.raise_signal(number)
            assert waiter.run(["no-such-command-anywhere"], {}) == 128 + number


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--topic", "orders:many"], 2, "is not name:partitions"),
        (["--topic", ":3"], 2, "is not name:partitions"),
        (["--brokers", "0"], 2, "--brokers"),
        (["--kafka-version", "0.8"], 2, "is not one of '2.1', '2.8', '3.9', '4.3'"),
        (["--port", "65535"], 2, "need port 65537, which does not exist"),
        (["--port", "0", "--topic", "no spaces"], 2, "topic 'no spaces' cannot be created"),
        (["--port", "0", "--topic", "orders:0"], 2, "topic 'orders' cannot be created"),
        (["--port", "0", "--", "no-such-command-anywhere"], 127, "no-such-command-anywhere: no such command"),
        (["--port", "0", "--", "/"], 126, "/: Permission denied"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(arguments: list[str], status: int, text: str) -> None:
    done = run_here(None, "cluster", *arguments)
    assert done.exit_code == status
    assert text in done.stderr
    assert done.stderr.splitlines()[-1].startswith("aiokprod cluster: ")


def test_a_command_finds_the_cluster_in_its_environment_and_its_status_is_ours() -> None:
    program = """
import asyncio, sys
from aiokprod import Producer, ProducerConfig

async def main():
    async with Producer(ProducerConfig.from_env()) as producer:
        print((await producer.send("orders", b"v")).offset, sys.argv[1:])
    return 7

sys.exit(asyncio.run(main()))
"""
    done = run("--port", "0", "--topic", "orders", "--", sys.executable, "-c", program, "--port", "x")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "0 ['--port', 'x']\n"  # nothing of ours in the command's output
    assert "bootstrap.servers=127.0.0.1:" in done.stderr


WAITS = """
import signal, sys
signal.signal(signal.{taken}, lambda number, frame: sys.exit(40 + number))
print("bootstrap.servers=none of them", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("taken", ["SIGINT", "SIGTERM"])
def test_a_command_gets_our_signals_and_ends_as_it_likes(taken: str) -> None:
    number = signal.Signals[taken]
    with cluster("--port", "0", "--", sys.executable, "-c", WAITS.format(taken=taken)) as (process, _):
        process.send_signal(number)
    assert process.returncode == 40 + number


def test_a_command_that_a_signal_ends_has_the_status_a_shell_gives_it() -> None:
    with cluster("--port", "0", "--", sys.executable, "-c", WAITS.format(taken="SIGINT")) as (process, _):
        process.terminate()
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("stdin", ["the terminal", "another file"])
def test_ctrl_c_at_a_terminal_reaches_the_command_once(stdin: str) -> None:
    """The terminal gives it to both; a second one would make a server give up its clean end."""
    program = (
        "import signal, time\n"
        "count = 0\n"
        "def note(number, frame):\n"
        "    global count\n"
        "    count += 1\n"
        "signal.signal(signal.SIGINT, note)\n"
        "print('ready', flush=True)\n"
        "while not count: time.sleep(0.01)\n"  # not pause(): the signal may come before it
        "until = time.monotonic() + 0.5\n"
        "while time.monotonic() < until: pass\n"
        "print('interrupted', count, flush=True)\n"
    )
    child, terminal = pty.fork()
    if child == 0:
        if stdin == "another file":
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execv(COMMAND[0], [*COMMAND, "--port", "0", "--", sys.executable, "-c", program])
    output = b""
    with os.fdopen(terminal, "r+b", buffering=0) as both:
        while b"ready" not in output:
            output += both.read(1024)
        both.write(b"\x03")
        try:
            while chunk := both.read(1024):
                output += chunk
        except OSError:
            pass  # the terminal ends with its last process
    _, status = os.waitpid(child, 0)
    assert b"interrupted 1" in output, output
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_signal_that_comes_twice_at_once_is_passed_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timeout -s INT` signals its command and then the group; a second signal makes a server give up its clean end."""
    moments = iter([10.0, 10.1, 10.2, 11.0, 11.1])
    monkeypatch.setattr("aiokprod.cli.cluster.monotonic", lambda: next(moments))
    passed_on: list[int] = []

    class Command:
        send_signal = staticmethod(passed_on.append)

    waiter = Waiter()
    waiter._child = Command()  # type: ignore[assignment]
    monkeypatch.setattr("aiokprod.cli.cluster._is_at_terminal", lambda: False)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGINT):
        waiter._signalled(number, None)
    assert passed_on == [signal.SIGINT, signal.SIGTERM, signal.SIGINT]


def test_the_handlers_of_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert CliRunner().invoke(cluster_command, ["--port", "0", "--", "true"]).exit_code == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_it_behaves_like_the_release_it_is_told_to() -> None:
    with cluster("--port", "0", "--kafka-version", "2.8") as (process, servers):
        host, _, port = servers.split(",")[0].partition(":")
        with closing(BlockingConnection(host, int(port), LIMIT_S)) as connection:  # asks for them first
            highest = {key: high for key, (_, high) in connection._versions.ranges.items()}
        process.terminate()
    assert highest[0] == 9  # Produce


def test_how_fast_it_answers_is_measured_by_a_script() -> None:
    after_imports_s, whole_s = bench().one_run_s()
    assert 0 < after_imports_s < whole_s


def test_a_topic_with_a_wrong_name_is_told_with_the_rule() -> None:
    done = run_here(None, "cluster", "--port", "0", "--topic", "a b")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "topic 'a b' cannot be created: Topic name is invalid. A name is 1 to 249 of the" in done.stderr
