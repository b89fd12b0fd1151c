"""`send_threadsafe`: a send from another thread, as a `concurrent.futures.Future` of its metadata. Stateless.

thread: copy what could change  ->  loop: send  ->  done callback of the Delivery  ->  thread: the Future is done
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from aiokprod.pipeline.delivery import Delivery
from aiokprod.record_metadata import RecordMetadata


def send_from_thread(
    loop: asyncio.AbstractEventLoop, send: Callable[..., Delivery], *arguments: Any, headers: Any, **options: Any
) -> Future[RecordMetadata]:
    """Have the loop send; the order of the calls of a thread is the order of its records.

    Raises:
        RuntimeError: the loop is closed.
    """
    future: Future[RecordMetadata] = Future()
    frozen = [bytes(each) if isinstance(each, bytearray | memoryview) else each for each in arguments]
    options["headers"] = _copied(headers)
    loop.call_soon_threadsafe(partial(_send, future, send, *frozen, **options))
    return future


def _copied(headers: Any) -> Any:
    if isinstance(headers, Mapping):
        return dict(headers)
    return headers.copy() if isinstance(headers, list) else headers


def _send(future: Future[RecordMetadata], send: Callable[..., Delivery], *arguments: Any, **options: Any) -> None:
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
