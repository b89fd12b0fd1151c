"""`LoopThread`: whatever ends the loop, each thread that waits has an outcome, and each record its exact persistence."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from blocking_rig import DEAD, LIMIT_S, cluster_of, in_thread, values, wait_until

from aiokprod import Persistence, Producer
from aiokprod.blocking import loop_thread
from aiokprod.blocking.loop_thread import LoopThread
from aiokprod.errors import BootstrapError, ProducerClosedError, ProducerFailedError, UndeliveredAtCloseError
from aiokprod.testing import MockCluster


@contextmanager
def begun(**options: Any) -> Iterator[tuple[MockCluster, LoopThread]]:
    """Yield a cluster and a thread that has connected."""
    with cluster_of("t") as cluster:
        thread = LoopThread(Producer(cluster.bootstrap_servers, **options))
        thread.begin()
        thread.started.result(LIMIT_S)
        yield cluster, thread
        thread.close(LIMIT_S)


def put(thread: LoopThread, value: object) -> Any:
    return thread.hand_over.put("t", value, None, None, (), None, None)


def test_a_call_runs_on_the_loop_behind_what_was_handed_over() -> None:
    with begun(linger_ms=60_000) as (_, thread):
        outcome = put(thread, b"v")
        thread.call(thread.producer.flush).result(LIMIT_S)
        assert outcome.result(0).offset == 0


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


ENDINGS: dict[str, Callable[[LoopThread], object]] = {
    "sys.exit": lambda thread: thread.post(sys.exit, 3),
    "stop": lambda thread: thread.post(thread._loop.stop),
}


@pytest.mark.parametrize("way", ENDINGS)
def test_a_loop_that_ends_tells_all_that_wait(way: str, caplog: pytest.LogCaptureFixture) -> None:
    with begun() as (cluster, thread):
        assert put(thread, b"first").result(LIMIT_S).offset == 0
        held = cluster.hold("Produce")
        flying = put(thread, b"flying")
        wait_until(lambda: cluster.requests_seen("Produce") == 2)
        waits = [thread.call(for_ever), thread.call(for_ever)]
        ENDINGS[way](thread)
        error = flying.exception(LIMIT_S)
        assert isinstance(error, UndeliveredAtCloseError) and error.persistence is Persistence.POSSIBLY_PERSISTED
        for each in waits:
            with pytest.raises(ProducerFailedError, match="the producer's thread has ended"):
                each.result(LIMIT_S)
        with pytest.raises(ProducerFailedError):
            put(thread, b"later")
        report = thread.close(LIMIT_S)
        assert report.count == 1
        with pytest.raises(ProducerFailedError):
            thread.call(thread.producer.flush)
        cluster.release(held)
    assert "the producer's thread ends" in caplog.text
    assert not [each for each in threading.enumerate() if each.name.startswith("aiokprod ")]


def test_a_record_is_settled_though_the_loop_cannot_run_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with begun() as (cluster, thread):
        assert put(thread, b"first").result(LIMIT_S).offset == 0
        held = cluster.hold("Produce")
        flying = put(thread, b"flying")
        wait_until(lambda: cluster.requests_seen("Produce") == 2)

        async def fails(timeout: float | None) -> None:
            raise MemoryError

        monkeypatch.setattr(thread.producer, "close", fails)
        thread.post(sys.exit, 3)
        error = flying.exception(LIMIT_S)
        assert isinstance(error, ProducerFailedError)
        cluster.release(held)
        assert thread.close(LIMIT_S).is_clean  # it was never told of the record
        monkeypatch.undo()
        with pytest.warns(ResourceWarning, match="was not closed before its event loop was"):
            asyncio.run(thread.producer.close())


def test_a_start_that_fails_ends_the_thread() -> None:
    thread = LoopThread(Producer(DEAD, start_timeout_ms=1))
    thread.begin()
    with pytest.raises(BootstrapError):
        thread.started.result(LIMIT_S)
    with pytest.raises(ProducerClosedError):
        thread.call(thread.producer.flush)
    assert thread.close(None).is_clean


def test_a_close_ends_a_start_that_goes_on() -> None:
    with cluster_of() as cluster:
        cluster.hold("ApiVersions")
        thread = LoopThread(Producer(cluster.bootstrap_servers))
        thread.begin()
        wait_until(lambda: cluster.requests_seen("ApiVersions") > 0)
        assert thread.close(None).is_clean
        with pytest.raises(ProducerClosedError):
            thread.started.result(LIMIT_S)


def test_several_closes_get_one_report_within_the_earliest_bound() -> None:
    with begun() as (cluster, thread):
        assert put(thread, b"first").result(LIMIT_S).offset == 0
        held = cluster.hold("Produce")
        flying = put(thread, b"flying")
        wait_until(lambda: cluster.requests_seen("Produce") == 2)
        closes = [in_thread(thread.close, None), in_thread(thread.close, 0.0), in_thread(thread.close, LIMIT_S)]
        reports = [each.result(LIMIT_S) for each in closes]
        assert reports[0].count == 1 and reports[1] is reports[0] and reports[2] is reports[0]
        assert isinstance(flying.exception(0), UndeliveredAtCloseError)
        cluster.release(held)


def test_a_close_behind_a_blocked_thread_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with begun() as (cluster, thread):
        blocked, free = threading.Event(), threading.Event()

        def block() -> None:
            blocked.set()
            free.wait(LIMIT_S)

        thread.post(block)
        assert blocked.wait(LIMIT_S)
        outcome = put(thread, b"v")
        monkeypatch.setattr(loop_thread, "GRACE_S", 0.0)
        with pytest.raises(ProducerFailedError, match="blocks it"):
            thread.close(0.0)
        monkeypatch.undo()
        free.set()
        assert thread.close(LIMIT_S).count == (outcome.exception(LIMIT_S) is not None)
        assert len(values(cluster)) == (outcome.exception(0) is None)


def test_one_that_cannot_be_started_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", fails)
    thread = LoopThread(Producer(DEAD))
    with pytest.raises(ProducerClosedError, match="cannot be started: can't create new thread"):
        thread.begin()
    assert isinstance(thread.started.exception(0), ProducerClosedError)


def test_a_call_that_is_cancelled_ends_on_the_loop() -> None:
    with begun() as (_, thread):
        ended: list[str] = []

        async def work() -> None:
            try:
                await for_ever()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        future = thread.call(work)
        thread.cancel(future)
        with pytest.raises(ProducerClosedError):
            future.result(LIMIT_S)
        assert ended in ([], ["cancelled"])
