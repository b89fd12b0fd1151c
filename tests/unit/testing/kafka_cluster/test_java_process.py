"""A process over its lives, and the reaper that ends it without us. `sleep` stands in for a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from child_process import Child

from aiokprod.testing.kafka_cluster.backend import BrokerState
from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.java_process import JavaProcess
from aiokprod.testing.kafka_cluster.process_reaper import ProcessReaper

BUSY = """
import hashlib, threading
def work():
    while True:
        hashlib.sha256(bytes(1 << 20))  # without the interpreter's lock
for _ in range(8):
    threading.Thread(target=work).start()
print("ready", flush=True)
"""
DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.01)


@pytest.fixture
def reaper(tmp_path: Path) -> Iterator[ProcessReaper]:
    made = ProcessReaper(tmp_path)
    yield made
    made.close()


@pytest.fixture
def make(tmp_path: Path, reaper: ProcessReaper) -> Iterator[Callable[..., JavaProcess]]:
    made: list[JavaProcess] = []

    def build(*command: str) -> JavaProcess:
        made.append(JavaProcess("broker 1", list(command), tmp_path, reaper))
        return made[-1]

    yield build
    for process in made:
        process.end(signal.SIGKILL, timeout_s=5)


def noted(tmp_path: Path) -> list[str]:
    return [note.name for note in (tmp_path / "pids").iterdir()]


def test_a_process_lives_ends_and_lives_again(make: Callable[..., JavaProcess], tmp_path: Path) -> None:
    process = make("sleep", "60")
    assert process.state is BrokerState.STOPPED
    process.end(signal.SIGTERM, timeout_s=1)  # nothing to end
    for _ in range(2):
        process.launch()
        pid = process.pid
        assert process.state is BrokerState.RUNNING
        assert noted(tmp_path) == [str(pid)]
        assert pid is not None
        assert os.getsid(pid) == pid
        process.end(signal.SIGTERM, timeout_s=5)
        assert (process.state, process.pid, noted(tmp_path)) == (BrokerState.STOPPED, None, [])


def test_a_process_that_ended_by_itself_is_seen_and_forgotten(make: Callable[..., JavaProcess], tmp_path: Path) -> None:
    process = make("sh", "-c", "echo why; exit 3")
    process.launch()
    eventually(lambda: process.state is BrokerState.STOPPED)
    assert noted(tmp_path) == []
    assert process.tail(10) == "why"
    with pytest.raises(KafkaClusterError, match="broker 1 is not running: no SIGSTOP sent"):
        process.pause()


def test_a_paused_process_ends_in_order(make: Callable[..., JavaProcess]) -> None:
    process = make("sh", "-c", "trap 'echo ended in order; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    process.launch()
    eventually(lambda: "ready" in process.tail(1))
    process.pause()
    assert process.state is BrokerState.PAUSED
    process.resume()
    assert process.state is BrokerState.RUNNING
    process.pause()
    process.end(signal.SIGTERM, timeout_s=5)
    assert process.tail(1) == "ended in order"


def thread_states(pid: int) -> set[str]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}


def test_every_thread_has_stopped_when_pause_returns(make: Callable[..., JavaProcess]) -> None:
    process = make(sys.executable, "-c", BUSY)
    process.launch()
    eventually(lambda: "ready" in process.tail(1))
    assert process.pid is not None
    for _ in range(50):
        process.pause()
        assert thread_states(process.pid) == {"T"}
        process.pause()  # nothing more to stop
        process.resume()


def test_a_process_deaf_to_the_signal_is_killed(make: Callable[..., JavaProcess]) -> None:
    process = make("sh", "-c", DEAF)
    process.launch()
    eventually(lambda: "ready" in process.tail(1))
    process.end(signal.SIGTERM, timeout_s=0.1)
    assert process.state is BrokerState.STOPPED


def test_the_tail_joins_log_and_output(make: Callable[..., JavaProcess], tmp_path: Path) -> None:
    process = make("true")
    assert process.tail(5) == ""
    process.log_file.write_text("one\ntwo\nthree\n")
    assert process.tail(2) == "two\nthree"


def test_the_reaper_ends_what_we_leave_behind_and_nothing_else(tmp_path: Path) -> None:
    program = (
        "import subprocess, sys, time\n"
        "from pathlib import Path\n"
        "from aiokprod.testing.kafka_cluster.process_reaper import ProcessReaper\n"
        "left, ended = (subprocess.Popen(['sleep', '60'], start_new_session=True) for _ in range(2))\n"
        "reaper = ProcessReaper(Path(sys.argv[1]))\n"
        "reaper.add(left.pid), reaper.add(ended.pid), reaper.remove(ended.pid)\n"
        "print(left.pid, ended.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    directory = tmp_path / "cluster"
    directory.mkdir()
    command = [sys.executable, "-c", program, str(directory)]
    with Child(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        left, ended = map(int, starter.stdout.readline().split())
    try:
        eventually(lambda: not is_running(left))
        assert is_running(ended)
        eventually(lambda: not directory.exists())
    finally:
        os.kill(ended, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie that is not waited for has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
