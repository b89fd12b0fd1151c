"""Defects of a producer's life: start, close, leaving, ping, loops that end."""

from __future__ import annotations

from .needs import ends, fills_the_buffer, has, has_hook
from .patching import Change, Defect

_CLOSES = '            self._begin_close(self.pipeline, "close() was called")\n'


def _gives_up_on(condition: str) -> str:
    return (
        f"            if {condition}:\n"
        "                self.pipeline = None\n"
        "                self.use_path(None)\n"
        '                self._move(ProducerState.CLOSED, "close() is done")\n'
        f'                raise TypeError("a timeout that is none")\n{_CLOSES}'
    )


DEFECTS = (
    Defect(
        "close_without_a_bound_leaks",
        "close(timeout=None) raises TypeError and leaves tasks and sockets behind",
        (Change("life", _CLOSES, _gives_up_on("timeout is None")),),
        ("tasks are left", "connections are left", "unsettled after close", "never settled"),
        has("close"),
        theme="wrong_bounds",
    ),
    Defect(
        "close_with_a_wrong_bound_leaks",
        'close(timeout="5") raises TypeError and leaves tasks and sockets behind',
        (
            Change(
                "config.call_timeouts",
                "    check_timeout(name, timeout)\n    return timeout\n",
                "    return timeout  # type: ignore\n",
            ),
            Change("life", _CLOSES, _gives_up_on("isinstance(timeout, str)")),
        ),
        ("tasks are left", "connections are left", "unsettled after close", "never settled"),
        has("close"),
        theme="wrong_bounds",
    ),
    Defect(
        "ping_without_a_bound_fails_all",
        "ping(timeout=None) fails the whole producer",
        (
            Change(
                "producer",
                "        if timeout is None:\n            timeout = self.config.request_timeout_ms / 1000\n",
                "",
            ),
            Change(
                "config.call_timeouts",
                "    if isinstance(timeout_s, bool) or",
                "    if timeout_s is None:\n        return timeout_s\n    if isinstance(timeout_s, bool) or",
            ),
        ),
        ("producer failed",),
        has("ping"),
        theme="wrong_bounds",
    ),
    Defect(
        "close_fails_what_waits_for_room",
        "closing fails what waits for room at once, though there is time and the cluster is well",
        (
            Change(
                "pipeline.pipeline",
                "        self.parking.close(self.closed_error)  # what",
                "        for dispatcher in list(self.parking.topics.values()):\n"
                "            for record in list(dispatcher.waiting):\n"
                "                if record.waits is WaitsFor.ROOM:\n"
                "                    self.parking.fail_parked(record, self.closed_error(record.topic))\n"
                "        self.parking.close(self.closed_error)  # what",
            ),
        ),
        ("close gives up in calm",),
        fills_the_buffer,
        theme="full",
    ),
    Defect(
        "close_during_start_does_nothing",
        "close() while start() is under way returns, and the start goes on",
        (
            Change(
                "life",
                "            return await self._close_while_starting(self._started)\n",
                "            return CloseReport.empty()\n",
            ),
        ),
        ("close while starting does nothing", "close ends too early"),
        theme="lived",
    ),
    Defect(
        "close_during_a_cancelled_start",
        "close() while start() closes its hooks returns at once if that start is cancelled, too",
        (
            Change(
                "life",
                "        if self._closing is not None:  # the start was cancelled while it closed its hooks, and has not waited"
                " for them\n            await self._closing.report()\n",
                "",
            ),
        ),
        ("close ends too early",),
        has_hook("interceptor"),
        theme="lived",
    ),
    Defect(
        "dead_after_its_loop",
        "a producer whose loop ended without close() can neither be closed nor started",
        (
            Change(
                "life",
                "        is_closing = self._closing is not None and not self._closing.is_done\n",
                "        return False\n        is_closing = self._closing is not None and not self._closing.is_done\n",
            ),
        ),
        ("dead after its loop", "the world crashes"),
        ends("second_loop"),
        theme="lived",
    ),
    Defect(
        "second_close_returns_at_once",
        "a second close() while the hooks are being closed returns at once, with an empty report",
        (
            Change(
                "life",
                "        if not self._closing.is_done:\n            self._check_loop()\n",
                "        if not any(self._checks._unclosed) and not self._closing.is_done:\n"
                "            return CloseReport.empty()\n"
                "        if not self._closing.is_done:\n            self._check_loop()\n",
            ),
        ),
        ("close ends too early", "close report"),
        has_hook("interceptor"),
        theme="lived",
    ),
    Defect(
        "bound_of_the_second_close",
        "close(timeout=0) while close(30) runs takes as long as the first",
        (Change("closing", "        if deadline < self._deadline:\n", "        if self._timer is None:\n"),),
        ("close takes too long", "close hangs"),
        theme="lived",
    ),
    Defect(
        "failed_start_leaves_hooks",
        "a start that fails or is cancelled leaves the hooks that it configured",
        (
            Change(
                "life",
                "            self._closing = Closing(pipeline, self._close_hooks, ended, self._log)\n",
                "            self._closing = Closing(pipeline, partial(asyncio.sleep, 0), ended, self._log)\n",
            ),
        ),
        ("hooks are not closed",),
        has_hook("interceptor"),
        theme="lived",
    ),
)
