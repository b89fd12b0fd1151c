"""Ends of a whole process: a loop that is gone, an interrupt."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable

from aiokprod.testing import MockCluster


def _run(program: str, servers: str, *, interrupt_after: Callable[[], bool] | None = None) -> tuple[int, str, str]:
    child = subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "default", "-c", program, servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if interrupt_after is not None:
            deadline = time.monotonic() + 30
            while not interrupt_after():
                assert time.monotonic() < deadline and child.poll() is None, child.communicate()
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    return child.returncode, out, err


def test_a_loop_closed_without_close_warns_and_the_process_ends_well() -> None:
    """faults: L13"""
    program = """
import asyncio, sys, time
from aiokprod import Producer

async def main():
    producer = Producer(sys.argv[1])
    await producer.start()
    await producer.send("t", b"v")
    producer.send("t", b"left")
    return producer

loop = asyncio.new_event_loop()
producer = loop.run_until_complete(main())
loop.close()
print("closed", time.monotonic(), flush=True)
"""
    with MockCluster() as cluster:
        cluster.create_topic("t")
        began = time.monotonic()
        code, out, err = _run(program, cluster.bootstrap_servers)
        assert code == 0, err
        assert "closed" in out
        assert time.monotonic() - began < 25
        assert "ResourceWarning" in err
        assert "Traceback" not in err, err


def test_an_interrupt_ends_in_bounded_time_and_everything_acknowledged_is_in_the_log() -> None:
    """faults: L18"""
    program = """
import asyncio, sys
from aiokprod import Producer

acked = []

async def main():
    async with Producer(sys.argv[1], linger_ms=1) as producer:
        number = 0
        while True:
            deliveries = [producer.send("t", b"%d" % (number + n)) for n in range(50)]
            number += 50
            for metadata in await asyncio.gather(*deliveries):
                acked.append(metadata.offset)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", len(acked), max(acked), flush=True)
"""
    with MockCluster() as cluster:
        cluster.create_topic("t")
        code, out, err = _run(
            program, cluster.bootstrap_servers, interrupt_after=lambda: len(cluster.records("t")) > 500
        )
        assert code == 0, err
        word, count, last = out.split()
        assert word == "interrupted"
        log = [record.value for record in cluster.records("t")]
        assert int(last) < len(log)
        assert int(count) <= len(log)
        assert log == [b"%d" % number for number in range(len(log))]
        assert "Traceback" not in err, err
