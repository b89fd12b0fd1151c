"""`SendCall`: what `producer.send` is in the compiled form. One per producer.

A method written in Python costs a quarter of a `send`, a compiled one cannot say that it returns an awaitable. So the
method stays what it is, for code that reads, patches, wraps or overrides it, and an instance has this object in its
place: it takes the arguments in C, and behaves like the method in everything else.

    producer.send  ->  SendAttribute  ->  SendCall(topic, value, key, ...)  ->  SendPath
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.sending.send_path import SendPath


class SendCall:
    """A callable that calls the send path while there is one, and else the method, which tells why there is none."""

    __slots__ = ("_method", "path")

    def __init__(self, method: Callable[..., Delivery]) -> None:
        """Make the call; `method`: the one that it stands for, bound to its producer."""
        self._method = method
        self.path: SendPath | None = None

    def __call__(
        self,
        topic: object,
        value: object = None,
        key: object = None,
        *,
        partition: object = None,
        headers: object = (),
        timestamp_ms: object = None,
        timeout: object = None,
    ) -> Delivery:
        """Send one record. The send path checks the types of the arguments."""
        path = self.path
        if path is None:
            return self._method(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms, timeout=timeout
            )
        return path.send(topic, value, key, partition, headers, timestamp_ms, timeout)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._method.__doc__

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the method: `__name__`, `__wrapped__`, the mark of a coroutine function, and so on."""
        if name == "__signature__":  # inspect asks first for it
            return inspect.signature(self._method)
        return getattr(self._method, name)

    def __reduce__(self) -> Any:
        """Reduce the method instead: its producer says why it cannot be copied or pickled."""
        return self._method.__reduce__()

    def __repr__(self) -> str:
        return repr(self._method)


class SendAttribute:
    """`send` in the class: the method for the class, the call for an instance."""

    __slots__ = ("_method",)

    def __init__(self, method: Callable[..., Delivery]) -> None:
        self._method = method

    def __get__(self, producer: Any, owner: Any) -> Any:
        return self._method if producer is None else producer._send_call
