"""The driver's side of a batch that is written exactly once: opening, commit, abort. Called by Spark's driver-side workers.

Each runs one procedure on the engine of the process, with a client that the process keeps for the next batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.metrics import Metrics
from aiokprod.spark.engine import current_engine
from aiokprod.spark.exactly_once import procedures
from aiokprod.spark.exactly_once.errors import ExactlyOnceError, NewerDriverError, refusal_error, unfinished_error
from aiokprod.spark.exactly_once.facts import Names
from aiokprod.spark.exactly_once.procedures import Request
from aiokprod.spark.exactly_once.protocol import Attempt
from aiokprod.spark.exactly_once.requests import SWEEP_S, Requests, log_left
from aiokprod.spark.messages import ExactlyOnceReport, Opened, TaskMessage
from aiokprod.transactions.coordinator import Coordinators

if TYPE_CHECKING:
    from aiokprod.config import ProducerConfig
    from aiokprod.spark.exactly_once.settings import ExactlyOnce
    from aiokprod.spark.options import SinkOptions

Result = TypeVar("Result")
ABORT_S: Final = 10.0
"""The longest time for an abort: what it leaves open is aborted by the next batch."""


def open_batch(options: SinkOptions, settings: ExactlyOnce) -> Opened:
    """Open a batch, before its tasks: finish what an earlier driver has decided, abort what it has not.

    Raises:
        NewerDriverError: another driver has taken over meanwhile.
        ExactlyOnceError: the coordinators did not answer in time.
        SinkUsageError: the brokers are older than Kafka 3.0, or allow no transactions of this length.
        ClusterError: the cluster cannot be reached, or a right is missing.
    """
    return current_engine().submit(_open(options, settings)).result()


async def _open(options: SinkOptions, settings: ExactlyOnce) -> Opened:
    async with _requests(options, Names(settings.sink, settings.topic, 1)) as requests:
        config = options.config
        requests.ask_slots(creates=config.allow_auto_create_topics, block_s=config.max_block_ms / 1000)
        opening = await _run(procedures.opening(time.time), requests)
        if opening is None:
            raise _newer(settings)
        return Opened(opening, requests.names.slots)


def commit_batch(options: SinkOptions, settings: ExactlyOnce, messages: Sequence[TaskMessage]) -> None:
    """Commit a batch, whose tasks have all reported.

    Raises:
        NewerDriverError: another driver has taken over; this one commits nothing more.
        CheckpointRewoundError: the batch is finished, and has another number of rows now.
        ReplayMismatchError: the batch is partly committed, and has other rows now; nothing more was committed.
        BatchUnfinishedError: it is decided, and a part is not committed.
        ExactlyOnceError: the coordinators did not answer in time.
        ClusterError: the cluster cannot be reached, or a right is missing.
    """
    reports = [each.exactly_once for each in messages if each.exactly_once is not None]
    if len(reports) != len(messages):
        raise ExactlyOnceError(
            "a task has written its rows at least once: the executors have another version of aiokprod"
        )
    if not reports:
        return  # a batch without partitions has no rows
    if len({(each.opened.opening.token, each.batch) for each in reports}) != 1:
        raise ExactlyOnceError("the tasks of this batch have reported to different drivers, or for different batches")
    leftovers = current_engine().submit(_commit(options, settings, reports)).result()
    if leftovers:
        opened = reports[0].opened
        _end_leftovers(options, settings, opened, procedures.sweep(opened.opening.token, leftovers), SWEEP_S)


async def _commit(
    options: SinkOptions, settings: ExactlyOnce, reports: Sequence[ExactlyOnceReport]
) -> tuple[Attempt, ...]:
    """Commit a batch; return the open transactions of attempts that did not win."""
    first = reports[0]
    names = Names(settings.sink, settings.topic, first.opened.slots)
    async with _requests(options, names) as requests:
        version = max(each.version for each in reports) or requests.version
        told = [each.report for each in reports]
        committing = procedures.commit(
            first.opened.opening,
            first.batch,
            version,
            told,
            time.time(),
            may_duplicate=settings.may_duplicate,
            stream=first.stream,
            # A job that is run again under its number writes nothing, whatever its rows are now.
            compares_count=not settings.may_skip and (settings.job is None or first.stream is not None),
        )
        outcome = await _run(committing, requests)
    if not outcome.is_newest:
        raise _newer(settings)
    is_job = settings.job is not None and first.stream is None
    if outcome.refusal is not None:
        rows = sum(each.rows for each in told)
        raise refusal_error(outcome.refusal, first.opened.opening, first.batch, "commit", rows, is_job=is_job)
    if outcome.missing:
        raise unfinished_error(first.batch, len(outcome.missing), len(told), is_job=is_job)
    return outcome.leftovers


def abort_batch(
    options: SinkOptions, settings: ExactlyOnce, messages: Sequence[object], opened: Opened | None = None
) -> None:
    """Abort what the tasks of a batch have prepared or left, unless it is decided.

    Never raises: Spark would hide the first error.

    Args:
        options: of the sink.
        settings: of exactly-once writes.
        messages: of the tasks that have reported.
        opened: of the batch; None: known from a message only.
    """
    reports = [
        each.exactly_once for each in messages if isinstance(each, TaskMessage) and each.exactly_once is not None
    ]
    opened = reports[0].opened if reports else opened
    if opened is not None:
        prepared = [each.report.attempt for each in reports if each.report.attempt is not None]
        _end_leftovers(options, settings, opened, procedures.abort(opened.opening.token, prepared), ABORT_S)


def _end_leftovers(
    options: SinkOptions,
    settings: ExactlyOnce,
    opened: Opened,
    procedure: Generator[Request, Any, None],
    most_s: float,
) -> None:
    """Run a procedure that aborts transactions which are part of no batch; a failure is told in the log."""

    async def run() -> None:
        async with _requests(options, Names(settings.sink, settings.topic, opened.slots), most_s) as requests:
            await _run(procedure, requests)

    try:
        current_engine().submit(run()).result()
    except Exception as error:  # of any kind: the batch has ended before
        log_left(error)


async def _run(procedure: Generator[Request, Any, Result], requests: Requests) -> Result:
    answer: Any = None
    while True:
        try:
            request = procedure.send(answer)
        except StopIteration as done:
            result: Result = done.value
            return result
        answer = await requests.carry_out(request)


@asynccontextmanager
async def _requests(options: SinkOptions, names: Names, most_s: float | None = None) -> AsyncGenerator[Requests]:
    """Lend a client of this process, and bound what is done with it."""
    engine, config = current_engine(), options.config
    key = ("requests", config)
    block_s = config.max_block_ms / 1000
    bound_s = config.delivery_timeout + block_s if most_s is None else most_s
    deadline = asyncio.get_running_loop().time() + bound_s
    link: Link | None = engine.take(key)
    if link is None:
        link = Link(config)
        await link.client.start(min(block_s, bound_s))
    requests = Requests(link.client, link.coordinators, config, names, deadline)
    try:
        yield requests
    except BaseException:
        await requests.close()
        await link.close()  # after an error the next batch begins with a new one
        raise
    engine.give_back(key, link, options.idle_timeout_s)


class Link:
    """A client that the process keeps from batch to batch, with the coordinators that it has found."""

    def __init__(self, config: ProducerConfig) -> None:
        self.client = ClusterClient(config, Metrics(), SilentListener())
        self.coordinators = Coordinators(self.client, config.request_timeout_ms / 1000)

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()


def _newer(settings: ExactlyOnce) -> NewerDriverError:
    return NewerDriverError(
        f"another driver has taken over the sinkId {settings.sink!r}; this one commits nothing more. If it had decided the"
        " batch already, and the answer was lost, the newer one finishes it"
    )
