"""The parts that tests of the blocking producer share: a cluster, threads that are waited for, programs in processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

from aiokprod.blocking import Producer
from aiokprod.testing import MockCluster

LIMIT_S: Final = 120.0  # a hang, not a slow machine
DEAD: Final = "127.0.0.1:1"


@contextmanager
def cluster_of(*topics: str) -> Iterator[MockCluster]:
    """Yield a cluster in a thread of its own, with these topics of one partition."""
    with MockCluster(brokers=1, auto_create_topics=False) as cluster:
        for topic in topics:
            cluster.create_topic(topic, partitions=1)
        yield cluster


@contextmanager
def started(**options: Any) -> Iterator[tuple[MockCluster, Producer]]:
    """Yield a cluster with the topic t, and a producer of it."""
    with cluster_of("t") as cluster, Producer(cluster.bootstrap_servers, **options) as producer:
        yield cluster, producer


def values(cluster: MockCluster, topic: str = "t") -> list[bytes | None]:
    """Return what is in the log."""
    return [record.value for record in cluster.records(topic)]


def in_thread(call: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call it in a thread of its own; return the outcome to come."""
    outcome: Future[Any] = Future()

    def work() -> None:
        try:
            outcome.set_result(call(*arguments))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return outcome


def wait_until(condition: Callable[[], bool]) -> None:
    """Look at a condition until it is true."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0)


PRELUDE = """
import atexit, os, signal, sys, threading, time
LAST = []  # called after the close at exit: registered before aiokprod is imported
atexit.register(lambda: [each() for each in LAST])
from aiokprod.blocking import Producer
from aiokprod.errors import *
from aiokprod.testing import MockCluster

def wait_until(condition):
    while not condition():
        time.sleep(0.001)

cluster = MockCluster(brokers=1, auto_create_topics=False)
cluster.__enter__()
cluster.create_topic("t", partitions=1)

def written():
    print("written:", len(cluster.records("t")), flush=True)

def in_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), flush=True)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def ended(program: str, *options: str) -> tuple[int, str, str]:
    """Run the program to its end; return its status, and what it printed."""
    text = PRELUDE + textwrap.dedent(program)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", *options, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout, done.stderr
