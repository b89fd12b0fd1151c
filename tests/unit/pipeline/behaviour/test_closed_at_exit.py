"""A producer on the loop of a daemon thread when the program ends: closed first; what could not be delivered is counted."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import asyncio, atexit, os, signal, sys, threading, time
LAST = []  # called after the close at exit: registered before aiokprod is imported
atexit.register(lambda: [each() for each in LAST])
from aiokprod import Producer
from aiokprod.errors import ProducerClosedError
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster

def in_a_thread(new_loop=asyncio.new_event_loop):
    loop = new_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop

def call(loop, work):
    return asyncio.run_coroutine_threadsafe(work, loop).result(60)

def wait_until(condition):
    while not condition():
        time.sleep(0.001)

cluster = MockCluster(brokers=1, auto_create_topics=False)
cluster.__enter__()
cluster.create_topic("t", partitions=1)

def written():
    print("written:", len(cluster.records("t")), flush=True)
"""
DEAD = "127.0.0.1:1"


def ended(program: str, *options: str) -> tuple[int, str, str]:
    """Run the program to its end; return its status, and what it printed."""
    text = PRELUDE + textwrap.dedent(program)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", *options, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


# ---------------------------------------------------------------------- it is closed
@pytest.mark.parametrize("new_loop", ["asyncio.new_event_loop", "__import__('uvloop').new_event_loop"])
@pytest.mark.parametrize("wait", [True, False])
def test_its_records_are_delivered_before_the_program_ends(new_loop: str, wait: bool) -> None:
    status, printed, errors = ended(f"""
        loop = in_a_thread({new_loop})
        producer = Producer(cluster.bootstrap_servers.replace("127.0.0.1", "localhost"), linger_ms=1_000)
        call(loop, producer.start(wait={wait}))
        for number in range(2_000):
            producer.send_threadsafe("t", b"%d" % number)
        LAST.append(written)
        sys.exit(3)
        """)
    assert (status, printed) == (3, "written: 2000\n")
    assert "lost" not in errors


def test_its_large_batches_are_compressed_though_no_thread_begins_any_more() -> None:
    status, printed, errors = ended("""
        loop = in_a_thread()
        producer = Producer(cluster.bootstrap_servers, compression_type="gzip", linger_ms=1_000, batch_size=1_000_000)
        call(loop, producer.start())
        for number in range(200):
            producer.send_threadsafe("t", b"%d" % number * 1_000)
        LAST.append(written)
        """)
    assert (status, printed) == (0, "written: 200\n")
    assert "lost" not in errors


def test_one_that_was_dropped_before_is_waited_for() -> None:
    status, printed, errors = ended("""
        loop = in_a_thread()
        async def work():
            producer = Producer(cluster.bootstrap_servers, linger_ms=1_000)
            await producer.start()
            for number in range(100):
                producer.send("t", b"%d" % number)
            del producer
            __import__("gc").collect()
        told = []
        loop.set_exception_handler(lambda _, context: told.extend(context["message"].split(": ")))
        held = cluster.hold("Produce")
        call(loop, work())
        wait_until(lambda: cluster.requests_seen("Produce") and any("was dropped without close()" in text for text in told))
        LAST.append(written)
        threading.Thread(target=lambda: (threading.main_thread().join(), cluster.release(held)), daemon=True).start()
        """)
    assert (status, printed) == (0, "written: 100\n")
    assert "lost" not in errors


def test_several_are_closed_side_by_side() -> None:
    status, printed, errors = ended("""
        producers = [Producer(cluster.bootstrap_servers) for _ in range(3)]
        for producer in producers:
            loop = in_a_thread()
            call(loop, producer.start())
            producer.send_threadsafe("t", b"first").result(60)
        held = cluster.hold("Produce")
        for producer in producers:
            producer.send_threadsafe("t", b"last")
        def release():
            wait_until(lambda: all(each.health().state is ProducerState.CLOSING for each in producers))
            cluster.release(held)
        threading.Thread(target=release, daemon=True).start()
        LAST.append(written)
        """)
    assert (status, printed) == (0, "written: 6\n")
    assert "lost" not in errors


def test_a_close_that_goes_on_already_is_waited_for() -> None:
    status, printed, errors = ended("""
        loop = in_a_thread()
        producer = Producer(cluster.bootstrap_servers)
        call(loop, producer.start())
        producer.send_threadsafe("t", b"first").result(60)
        held = cluster.hold("Produce")
        producer.send_threadsafe("t", b"last")
        asyncio.run_coroutine_threadsafe(producer.close(), loop)
        wait_until(lambda: producer.health().state is ProducerState.CLOSING)
        threading.Thread(target=lambda: (threading.main_thread().join(), cluster.release(held)), daemon=True).start()
        LAST.append(written)
        """)
    assert (status, printed) == (0, "written: 2\n")
    assert "lost" not in errors


def test_what_the_application_does_at_exit_comes_first() -> None:
    status, printed, errors = ended("""
        loop = in_a_thread()
        producer = Producer(cluster.bootstrap_servers)
        call(loop, producer.start())
        atexit.register(lambda: print(call(loop, producer.close()).is_clean))
        producer.send_threadsafe("t", b"v")
        LAST.append(written)
        """, "-W", "always::ResourceWarning")  # fmt: skip
    assert (status, printed) == (0, "True\nwritten: 1\n")
    assert "Producer" not in errors


def test_of_sends_that_go_on_each_is_delivered_or_refused() -> None:
    status, printed, errors = ended("""
        loop = in_a_thread()
        producer = Producer(cluster.bootstrap_servers)
        call(loop, producer.start())
        producer.send_threadsafe("t", b"first").result(60)
        futures, refused = [], []
        def send():
            try:
                while True:
                    futures.append(producer.send_threadsafe("t", b"v"))
            except Exception as error:
                refused.append(type(error).__name__)
        threads = [threading.Thread(target=send, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(futures) > 100)
        def last():
            for thread in threads:
                thread.join()
            errors = {type(future.exception(60)).__name__ for future in futures} - {"NoneType"}
            delivered = sum(future.exception() is None for future in futures)
            print(refused, errors <= {"ProducerClosedError"}, len(cluster.records("t")) - delivered)
        LAST.append(last)
        """)
    assert (status, printed) == (0, "['ProducerClosedError', 'ProducerClosedError'] True 1\n")
    assert "lost" not in errors


# ---------------------------------------------------------------------- it cannot be closed, or not in time
def test_what_could_not_be_delivered_in_time_is_counted() -> None:
    status, _, errors = ended(f"""
        loop = in_a_thread()
        producer = Producer("{DEAD}", close_timeout_ms=100)
        call(loop, producer.start(wait=False))
        for number in range(100):
            producer.send_threadsafe("t", b"%d" % number)
        sys.exit(3)
        """)
    assert status == 3
    assert "it was never closed, and not all could be delivered within 0.1 s after the program ended" in errors
    assert "100 records are lost (t: 100 not persisted)" in errors


def test_a_close_without_a_bound_gets_that_of_the_options() -> None:
    status, _, errors = ended(f"""
        loop = in_a_thread()
        producer = Producer("{DEAD}", close_timeout_ms=100)
        call(loop, producer.start(wait=False))
        producer.send_threadsafe("t", b"v")
        asyncio.run_coroutine_threadsafe(producer.close(None), loop)
        wait_until(lambda: producer.health().state is ProducerState.CLOSING)
        """)
    assert status == 0
    assert "the program ended before its close() did" in errors and "1 records are lost" in errors


BLOCKED = """
    loop = in_a_thread()
    producer = Producer(cluster.bootstrap_servers, close_timeout_ms=100)
    call(loop, producer.start())
    producer.send_threadsafe("t", b"first").result(60)
    cluster.hold("Produce")
    producer.send_threadsafe("t", b"v")
    wait_until(lambda: cluster.requests_seen("Produce") == 2)
    call(loop, asyncio.sleep(0))
    blocked = threading.Event()
    {ends}
    for _ in range(2):
        producer.send_threadsafe("t", b"v")
    """


def test_a_blocked_loop_holds_up_the_end_no_longer_than_the_bound() -> None:
    ends = "loop.call_soon_threadsafe(lambda: (blocked.set(), time.sleep(3_600))); blocked.wait()"
    status, _, errors = ended(BLOCKED.format(ends=ends))
    assert status == 0
    assert "it was never closed, and its event loop was blocked for 0.1 s after the program ended" in errors
    assert "3 records are lost (t-0: 1 possibly persisted, 2 that send_threadsafe() had not handed over)" in errors


@pytest.mark.parametrize("way", ["loop.stop", "sys.exit"])
def test_a_loop_that_was_stopped_is_not_waited_for(way: str) -> None:
    ends = f"loop.call_soon_threadsafe({way}); wait_until(lambda: not loop.is_running())"
    status, _, errors = ended(BLOCKED.format(ends=ends).replace("=100", "=3_600_000"))
    assert status == 0
    assert "it was never closed: 3 records are lost (t-0: 1 possibly persisted, 2 that send" in errors


@pytest.mark.parametrize("way", ["stopped", "closed", "dropped"])
def test_failures_that_are_kept_for_callers_are_reported_though_the_loop_does_not_run(way: str) -> None:
    status, printed, errors = ended(f"""
        loop = asyncio.new_event_loop()

        async def begin():
            producer = Producer(cluster.bootstrap_servers, on_delivery_error=lambda error: print(error.topic, error.reported))
            await producer.start()
            cluster.fail_next("Produce", "POLICY_VIOLATION")
            producer.send("t", b"v")
            await producer.flush()
            return producer

        producer = loop.run_until_complete(begin())
        print("kept", flush=True)
        if {way == "closed"}:
            loop.close()
        if {way == "dropped"}:
            del producer
            __import__("gc").collect()
        """)
    assert status == 0
    assert printed == "kept\nt True\n"
    assert "1 record failed that no caller awaited: BrokerRejectedError" in errors


def test_ctrl_c_ends_the_wait() -> None:
    status, _, errors = ended(f"""
        loop = in_a_thread()
        producer = Producer("{DEAD}", close_timeout_ms=3_600_000)
        call(loop, producer.start(wait=False))
        producer.send_threadsafe("t", b"v")
        def interrupt():
            wait_until(lambda: producer.health().state is ProducerState.CLOSING)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt, daemon=True).start()
        """)
    assert status == 0
    assert "the wait for its close was interrupted: 1 records are lost (t: 1 not persisted)" in errors


def test_a_warning_that_is_an_error_hides_no_count() -> None:
    status, _, errors = ended(
        f"""
        producers = [Producer("{DEAD}", client_id="c%d" % number, close_timeout_ms=100) for number in range(2)]
        for producer in producers:
            call(in_a_thread(), producer.start(wait=False))
            producer.send_threadsafe("t", b"v")
        """,
        *("-W", "error::ResourceWarning"),
    )
    assert status == 0
    assert all(f"Producer c{number}: it was never closed, and not all" in errors for number in range(2))
    assert errors.count("ResourceWarning: Producer") == 2


def test_a_closed_stderr_changes_nothing() -> None:
    status, printed, _ = ended(f"""
        loop = in_a_thread()
        producer = Producer("{DEAD}", close_timeout_ms=100)
        call(loop, producer.start(wait=False))
        producer.send_threadsafe("t", b"v")
        LAST.append(written)
        os.close(2)
        """)
    assert (status, printed) == (0, "written: 0\n")


# ---------------------------------------------------------------------- nothing is said
def test_nothing_is_said_of_producers_that_are_closed_or_were_not_started() -> None:
    status, printed, errors = ended("""
        loop = in_a_thread()
        producers = [Producer(cluster.bootstrap_servers) for _ in range(3)]
        call(loop, producers[1].start())
        producers[1].send_threadsafe("t", b"v").result(60)
        call(loop, producers[1].close())
        cluster.hold("ApiVersions")
        asyncio.run_coroutine_threadsafe(producers[2].start(), loop)
        wait_until(lambda: producers[2].health().state is ProducerState.STARTING)
        LAST.append(written)
        """, "-W", "always::ResourceWarning")  # fmt: skip
    assert (status, printed) == (0, "written: 1\n")
    assert "Producer" not in errors


CHILDREN = {
    "fork": """
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        """,
    "multiprocessing": """
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=int)
        child.start(); child.join()
        """,
}


@pytest.mark.parametrize("way", CHILDREN)
def test_a_forked_child_leaves_the_producer_of_its_parent_alone(way: str) -> None:
    status, printed, errors = ended(f"""
        loop = in_a_thread()
        producer = Producer(cluster.bootstrap_servers, linger_ms=60_000)
        call(loop, producer.start())
        producer.send_threadsafe("t", b"first").result(60)
        producer.send_threadsafe("t", b"v")
        {CHILDREN[way]}
        print(producer.health().state.name, flush=True)
        LAST.append(written)
        """)
    assert (status, printed) == (0, "READY\nwritten: 2\n")
    assert "lost" not in errors


def test_a_forked_child_closes_a_producer_of_its_own() -> None:
    status, printed, errors = ended("""
        child = os.fork()
        if child == 0:
            producer = Producer(cluster.bootstrap_servers, linger_ms=1_000)
            call(in_a_thread(), producer.start())
            producer.send_threadsafe("t", b"v")
            sys.exit(0)
        os.waitpid(child, 0)
        written()
        """)
    assert (status, printed) == (0, "written: 1\n")
    assert "lost" not in errors
