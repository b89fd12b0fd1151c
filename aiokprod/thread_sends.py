"""`send_threadsafe`: a send from another thread, as a `concurrent.futures.Future` of its metadata. Stateless.

thread: copy mutable arguments  ->  loop: send  ->  done callback of the Delivery  ->  thread: the Future is done
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.record_metadata import RecordMetadata


def send_from_thread(
    loop: asyncio.AbstractEventLoop,
    untaken: set[Future[RecordMetadata]],
    send: Callable[..., Delivery],
    *arguments: Any,
    headers: Any,
    **options: Any,
) -> Future[RecordMetadata]:
    """Call `send` on the loop; records keep the order of the calls of a thread.

    Args:
        loop: of the producer.
        untaken: has the Future until the loop takes the record, so that the record is counted if the loop never does.
        send: called on the loop, with the other arguments.
        *arguments: topic, value and key.
        headers: of the record.
        **options: the other arguments of `send`.

    Raises:
        RuntimeError: the loop is closed.
    """
    future: Future[RecordMetadata] = Future()
    taken = [frozen(each) for each in arguments]
    options["headers"] = copied(headers)
    untaken.add(future)
    try:
        loop.call_soon_threadsafe(partial(_send, future, untaken, send, *taken, **options))
    except RuntimeError:
        untaken.discard(future)
        raise
    return future


def copied(headers: Any) -> Any:
    """Copy the pairs and their values; what is no header is passed on, and `send` says what is wrong with it."""
    if isinstance(headers, Mapping):
        return {name: frozen(value) for name, value in cast("Mapping[object, object]", headers).items()}
    if not isinstance(headers, list | tuple):
        return headers
    return [_copied_pair(pair) for pair in cast("Sequence[object]", headers)]


def _copied_pair(pair: object) -> object:
    return tuple(map(frozen, cast("Sequence[object]", pair))) if isinstance(pair, list | tuple) else pair


def frozen(value: object) -> object:
    """Copy a buffer that may change; anything else is passed on."""
    return bytes(cast("bytes", value)) if isinstance(value, bytearray | memoryview) else value


def _send(
    future: Future[RecordMetadata],
    untaken: set[Future[RecordMetadata]],
    send: Callable[..., Delivery],
    *arguments: Any,
    **options: Any,
) -> None:
    untaken.discard(future)
    if not future.set_running_or_notify_cancel():
        return
    try:
        delivery = send(*arguments, **options)
    except BaseException as refused:
        future.set_exception(refused)
        return
    delivery.add_done_callback(partial(_settle, future))


def _settle(future: Future[RecordMetadata], delivery: Delivery) -> None:
    error = delivery.exception()
    if error is None:
        future.set_result(delivery.result())
    else:
        future.set_exception(error)
