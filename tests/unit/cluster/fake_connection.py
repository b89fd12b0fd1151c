"""A connection without a socket, with what the pool and the control route use of the real one."""

from __future__ import annotations

from collections.abc import Callable

Closed = Callable[["FakeConnection", Exception], None]


class FakeConnection:
    """A connection that is open until it is closed; the test sets its attributes."""

    def __init__(self, node_id: int = 1, host: str = "host1", port: int = 9001) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.in_flight = 0
        self.idle_since: float | None = 1000.0
        self.expires_at: float | None = None
        self.is_writable = True
        self.cause: Exception | None = None
        self.mutes: list[float] = []
        self.is_retired = False
        self.waited_for = False
        self._callbacks: list[Closed] = []

    @property
    def is_open(self) -> bool:
        return self.cause is None

    def add_close_callback(self, callback: Closed) -> None:
        self._callbacks.append(callback)

    def mute(self, seconds: float) -> None:
        self.mutes.append(seconds)

    def retire(self) -> None:
        self.is_retired = True

    def close(self, cause: Exception) -> None:
        if self.cause is None:
            self.cause = cause
            for callback in self._callbacks:
                callback(self, cause)

    async def wait_closed(self) -> None:
        assert self.cause is not None
        self.waited_for = True
