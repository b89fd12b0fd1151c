"""`aiokprod.blocking.Producer`: the first call starts it, once; closes; forks; the end of the program; a WSGI application."""

from __future__ import annotations

import gc
import io
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from blocking_rig import DEAD, LIMIT_S, cluster_of, ended, in_thread, started, values, wait_until

from aiokprod import ProducerState
from aiokprod.blocking import Producer
from aiokprod.errors import BootstrapError, ProducerClosedError, ProducerFailedError, UndeliveredAtCloseError


def threads_of_producers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("aiokprod ")]


# ---------------------------------------------------------------------- start
def test_the_first_call_starts_it_once_whatever_the_number_of_threads() -> None:
    with cluster_of("t") as cluster:
        producer = Producer(cluster.bootstrap_servers)
        assert threads_of_producers() == []
        calls = [in_thread(producer.send, "t", b"v") for _ in range(8)]
        assert sorted(call.result(LIMIT_S).offset for call in calls) == list(range(8))
        assert len(threads_of_producers()) == 1
        assert producer.close().is_clean
        assert threads_of_producers() == []


def test_threads_share_a_start_that_fails_and_the_next_call_tries_again() -> None:
    with cluster_of("t") as cluster:
        held = cluster.hold("ApiVersions")
        producer = Producer(cluster.bootstrap_servers, start_timeout_ms=2_000)
        calls = [in_thread(producer.send, "t", b"v") for _ in range(4)]
        errors = [call.exception(LIMIT_S) for call in calls]
        assert all(isinstance(error, BootstrapError) for error in errors)
        cluster.release(held)
        assert producer.send("t", b"v").offset == 0
        assert producer.close().is_clean


def test_an_interrupt_of_the_first_call_lets_the_start_go_on() -> None:
    with cluster_of("t") as cluster:
        held = cluster.hold("ApiVersions")
        producer = Producer(cluster.bootstrap_servers)
        me = threading.get_ident()

        def interrupt() -> None:
            wait_until(lambda: cluster.requests_seen("ApiVersions") > 0)
            signal.pthread_kill(me, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            producer.send("t", b"v")
        thread.join()
        cluster.release(held)
        assert producer.send("t", b"v").offset == 0
        assert producer.close().is_clean


# ---------------------------------------------------------------------- close
def test_after_the_close_each_call_is_refused() -> None:
    with started() as (_, producer):
        producer.send("t", b"v")
        report = producer.close()
        calls: list[Callable[[], object]] = [
            lambda: producer.send("t", b"v"),
            lambda: producer.submit("t", b"v"),
            lambda: producer.send_many("t", iter([b"v"])),
            lambda: producer.partitions_for("t"),
            producer.flush,
            producer.__enter__,
        ]
        for call in calls:
            with pytest.raises(ProducerClosedError, match="the producer is closed: create a new one"):
                call()
        assert producer.close() is report and report.is_clean
    assert producer.health().state is ProducerState.CLOSED


def test_one_that_was_never_used_is_closed_without_a_thread() -> None:
    producer = Producer(DEAD)
    assert producer.close().is_clean
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"v")


def test_the_close_delivers_what_was_submitted() -> None:
    with started(linger_ms=60_000) as (cluster, producer):
        futures = [producer.submit("t", b"%d" % number) for number in range(2_000)]
        assert producer.close(LIMIT_S).is_clean
        assert all(future.done() for future in futures)
        assert len(values(cluster)) == 2_000


def test_what_the_end_of_with_could_not_deliver_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with cluster_of("t") as cluster:
        with Producer(cluster.bootstrap_servers, close_timeout_ms=0) as producer:
            producer.send("t", b"first")
            held = cluster.hold("Produce")
            future = producer.submit("t", b"v")
        assert isinstance(future.exception(0), UndeliveredAtCloseError)
        assert "close() could not deliver 1 record" in caplog.text
        cluster.release(held)


def test_an_exception_of_the_body_wins() -> None:
    with cluster_of("t") as cluster, pytest.raises(KeyError), Producer(cluster.bootstrap_servers) as producer:
        producer.submit("t", b"v")
        raise KeyError
    assert values(cluster) == [b"v"]


def test_a_thread_that_ends_is_told_to_all_calls() -> None:
    with started() as (_, producer):
        producer.send("t", b"v")
        assert producer._thread is not None
        producer._thread.post(sys.exit, 3)
        for call in (producer.flush, lambda: producer.send("t", b"v"), lambda: producer.send_many("t", iter([b"v"]))):
            with pytest.raises(ProducerFailedError, match="SystemExit: 3"):
                call()


def test_one_that_is_dropped_is_closed_in_the_background(caplog: pytest.LogCaptureFixture) -> None:
    with cluster_of("t") as cluster:
        producer = Producer(cluster.bootstrap_servers, linger_ms=60_000)
        future = producer.submit("t", b"v")
        with pytest.warns(ResourceWarning, match="was dropped without close"):
            del producer
            gc.collect()
        assert future.result(LIMIT_S).offset == 0
        wait_until(lambda: threads_of_producers() == [])
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# ---------------------------------------------------------------------- fork
def test_a_child_connects_by_itself_and_sends_nothing_of_its_parent() -> None:
    status, printed, errors = ended("""
        producer = Producer(cluster.bootstrap_servers, linger_ms=60_000)
        assert producer.send("t", b"parent").offset == 0
        held = cluster.hold("Produce")
        future = producer.submit("t", b"parent's own")
        wait_until(lambda: cluster.requests_seen("Produce") == 2)

        def work():
            try:
                future.result()
            except ForkedError:
                print("the outcome is the parent's", flush=True)
            print(producer.health().state.name, flush=True)
            producer.submit("t", b"child")
            print(producer.health().state.name, flush=True)

        pid = os.fork()
        if pid == 0:
            work()
            sys.exit(0)
        cluster.release(held)
        assert os.waitpid(pid, 0)[1] == 0
        assert future.result(60) is not None and producer.send("t", b"parent") is not None
        assert producer.close().is_clean
        print(sorted(record.value for record in cluster.records("t")), flush=True)
        """)
    assert printed.splitlines() == [
        "the outcome is the parent's",
        "NEW",
        "READY",
        "[b'child', b'parent', b'parent', b\"parent's own\"]",
    ]
    assert status == 0 and "lost" not in errors


def test_workers_that_were_forked_before_the_first_use_share_nothing() -> None:
    status, printed, errors = ended("""
        producer = Producer(cluster.bootstrap_servers)  # gunicorn --preload, Celery's prefork
        for number in range(3):
            in_child(lambda: producer.send("t", b"%d" % number))
        print(producer.health().state.name, [record.value for record in cluster.records("t")], flush=True)
        """)
    assert (status, printed) == (0, "NEW [b'0', b'1', b'2']\n")
    assert "lost" not in errors


def test_a_child_that_is_forked_by_a_thread_in_the_middle_of_calls_can_send() -> None:
    status, printed, errors = ended("""
        producer = Producer(cluster.bootstrap_servers)
        producer.send("t", b"first")
        over = threading.Event()
        def send():
            while not over.is_set():
                producer.send("t", b"parent")
        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            in_child(lambda: [producer.send("t", b"child") for _ in range(10)])
        over.set()
        for thread in threads:
            thread.join()
        producer.close()
        print([record.value for record in cluster.records("t")].count(b"child"), flush=True)
        """)
    assert (status, printed) == (0, "50\n")
    assert "lost" not in errors


def test_a_child_of_multiprocessing_closes_its_own_and_leaves_that_of_its_parent_open() -> None:
    status, printed, _ = ended("""
        import multiprocessing
        producer = Producer(cluster.bootstrap_servers, linger_ms=60_000)
        producer.send("t", b"parent")
        def work():
            for number in range(100):
                producer.submit("t", b"%d" % number)
            producer.close()
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start(); child.join()
        producer.send("t", b"parent")
        written()
        producer.close()
        """)
    assert (status, printed) == (0, "written: 102\n")


# ---------------------------------------------------------------------- the end of the program
@pytest.mark.parametrize("full", [False, True])
def test_what_was_submitted_is_delivered_before_the_program_ends(full: bool) -> None:
    options = "buffer_memory=100_000, batch_size=10_000, max_request_size=20_000" if full else "linger_ms=60_000"
    status, printed, errors = ended(f"""
        producer = Producer(cluster.bootstrap_servers, {options})
        for number in range(5_000):
            producer.submit("t", b"%d" % number)
        LAST.append(written)
        sys.exit(3)
        """)
    assert (status, printed) == (3, "written: 5000\n")
    assert "lost" not in errors


def test_what_could_not_be_delivered_in_time_is_counted() -> None:
    status, _, errors = ended("""
        producer = Producer(cluster.bootstrap_servers, close_timeout_ms=100)
        producer.send("t", b"first")
        cluster.hold("Produce")
        for number in range(100):
            producer.submit("t", b"%d" % number)
        """)
    assert status == 0
    assert "not all could be delivered within 0.1 s after the program ended: 100 records are lost" in errors


def test_a_close_at_exit_is_possible_and_the_end_is_then_silent() -> None:
    status, printed, errors = ended("""
        producer = Producer(cluster.bootstrap_servers, linger_ms=60_000)
        atexit.register(lambda: print(producer.close().is_clean, flush=True))
        producer.submit("t", b"v")
        LAST.append(written)
        """, "-W", "always::ResourceWarning")  # fmt: skip
    assert (status, printed) == (0, "True\nwritten: 1\n")
    assert "Producer" not in errors


def test_calls_of_other_threads_at_the_end_each_have_an_outcome() -> None:
    status, printed, errors = ended("""
        producer = Producer(cluster.bootstrap_servers)
        producer.send("t", b"first")
        told, calls = [], []
        def send():
            delivered = 0
            try:
                while True:
                    producer.send("t", b"v")
                    delivered += 1
                    told.append(delivered)
            except (ProducerClosedError, UndeliveredAtCloseError) as error:
                calls.append(delivered)
        threads = [threading.Thread(target=send, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(told) > 30)
        def last():
            for thread in threads:
                thread.join()
            print(len(calls), len(cluster.records("t")) - 1 - sum(calls), flush=True)
        LAST.append(last)
        """)
    assert (status, printed) == (0, "3 0\n")
    assert "lost" not in errors


# ---------------------------------------------------------------------- a web application
def test_a_wsgi_application_keeps_one_for_all_its_requests() -> None:
    with cluster_of("t") as cluster:
        producer = Producer(cluster.bootstrap_servers)

        def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            metadata = producer.send("t", environ["wsgi.input"].read())
            start_response("202 Accepted", [("Content-Type", "application/json")])
            return [json.dumps({"offset": metadata.offset}).encode()]

        def request(number: int) -> int:
            statuses: list[str] = []
            body = b"".join(
                application({"wsgi.input": io.BytesIO(b"%d" % number)}, lambda status, _: statuses.append(status))
            )
            assert statuses == ["202 Accepted"]
            offset: int = json.loads(body)["offset"]
            return offset

        requests = [in_thread(request, number) for number in range(20)]
        offsets = [each.result(LIMIT_S) for each in requests]
        assert [values(cluster)[offset] for offset in offsets] == [b"%d" % number for number in range(20)]
        assert producer.close().is_clean
