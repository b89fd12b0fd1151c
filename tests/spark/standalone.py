"""Spark's standalone cluster on this machine: a master and two workers, each on a loopback host of its own."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from child_process import Child

HOSTS = ("127.0.0.2", "127.0.0.3")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def _running(folder: Path, name: str, host: str, *arguments: str) -> Iterator[Path]:
    """Run a process of Spark; yield its log."""
    home = Path(pyspark.__file__).parent
    log = folder / f"{name}.log"
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    with log.open("wb") as written:
        command = [str(home / "bin" / "spark-class"), *arguments]
        process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT, env=environment)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(log: Path, words: str, count: int = 1) -> None:
    """Follow the log until the words have appeared so often."""
    with Child(["tail", "-n", "+1", "-F", str(log)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as tail:
        assert tail.stdout is not None
        while count and (line := tail.stdout.readline()):
            count -= words.encode() in line


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Yield the URL of the master, when both workers are registered."""
    port = _free_port()
    url = f"spark://127.0.0.1:{port}"
    master = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    with ExitStack() as running:
        log = running.enter_context(
            _running(folder, "master", "127.0.0.1", "org.apache.spark.deploy.master.Master", *master)
        )
        _wait_for(log, "I have been elected leader")
        for host in HOSTS:
            worker = ("--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0")
            work = ("--work-dir", str(folder / f"work-{host}"))
            running.enter_context(
                _running(folder, host, host, "org.apache.spark.deploy.worker.Worker", *worker, *work, url)
            )
        _wait_for(log, "Registering worker", len(HOSTS))
        yield url
