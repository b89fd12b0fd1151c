"""Changes of a worker of Spark's daemon, and of no other process: garbage, and acknowledgements."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from aiokprod.spark.worker_process import DAEMON, QUICKACK

BEGIN = """
import gc, os, socket, sys
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec(sys.argv[1], None)
from aiokprod.spark.worker_process import acknowledge_at_once, freeze_modules
"""
FREEZES = """
counts = [gc.get_freeze_count()]
for _ in range(2):
    freeze_modules()
    counts.append(gc.get_freeze_count())
    kept = [[] for _ in range(1000)]
print(*counts)
"""
ACKNOWLEDGES = """
def is_quick():
    return worker.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
with socket.create_server(("127.0.0.1", 0)) as server:
    spark = socket.create_connection(server.getsockname())
    worker, _ = server.accept()
    other, _ = socket.socketpair()
    reading, _ = os.pipe()
    worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    found = [is_quick()]
    before = os.listdir("/proc/self/fd")
    for _ in range(2):
        acknowledge_at_once()
        found.append(is_quick())
        worker.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    assert os.listdir("/proc/self/fd") == before
    spark.sendall(b"rows")
    assert worker.recv(4) == b"rows"  # it is still open
print(*found)
"""

LEAVES_THE_REST = """
import fcntl, subprocess, tempfile
from pathlib import Path
from unittest.mock import patch
with socket.create_server(("127.0.0.1", 0)) as server, tempfile.NamedTemporaryFile() as locked:
    spark = socket.create_connection(server.getsockname())
    worker, _ = server.accept()
    fcntl.lockf(locked, fcntl.LOCK_EX)
    other = f"import fcntl; fcntl.lockf(open({locked.name!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    socket.setdefaulttimeout(30)  # as code of the user may
    acknowledge_at_once()
    print(int(os.get_blocking(worker.fileno())))
    print(int(subprocess.run([sys.executable, "-c", other], stderr=subprocess.DEVNULL).returncode != 0))
    with patch.object(Path, "iterdir", side_effect=FileNotFoundError):
        acknowledge_at_once()
"""


def printed(program: str, main: str) -> list[int]:
    """Return the numbers that a program prints whose main module has this name."""
    command = [sys.executable, "-W", "ignore::ResourceWarning", "-c", BEGIN + program, main]
    return [int(each) for each in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def test_a_worker_freezes_its_modules_once() -> None:
    none, first, second = printed(FREEZES, DAEMON)
    assert none == 0
    assert first > 1000
    assert second <= first
    assert printed(FREEZES, "pytest") == [0, 0, 0]


@pytest.mark.skipif(QUICKACK is None, reason="an option of Linux")
def test_a_worker_acknowledges_at_once_in_each_task() -> None:
    assert printed(ACKNOWLEDGES, DAEMON) == [0, 1, 1]
    assert printed(ACKNOWLEDGES, "pytest") == [0, 0, 0]


@pytest.mark.skipif(QUICKACK is None, reason="an option of Linux")
def test_connections_stay_blocking_files_stay_locked_and_no_directory_is_needed() -> None:
    assert printed(LEAVES_THE_REST, DAEMON) == [1, 1]


@pytest.mark.slow
def test_this_is_how_spark_starts_its_workers(spark: SparkSession) -> None:
    def name_of_main(_: int) -> str | None:
        import sys

        spec = sys.modules["__main__"].__spec__
        return None if spec is None else spec.name

    assert spark.sparkContext.parallelize([0], 1).map(name_of_main).collect() == [DAEMON]
