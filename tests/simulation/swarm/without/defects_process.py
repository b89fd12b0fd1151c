"""Defects that faults of the process show: an exception between two lines, the end of the stack, what sends in the middle."""

from __future__ import annotations

from .patching import Change, Defect

THEME = "process"
STUCK = (
    "pending for ever",
    "delivers nothing",
    "flush hangs",
    "never settled",
    "timeout in a healthy cluster",
    "slow once well",
    "settled late",
    "await hangs",
    "callback hangs",
    "send_many hangs",
    "ready hangs",
    "close takes too long",
    "unsettled after close",
    "flush is late",
    "not ready though all is well",
)
TORN = (
    "an innocent record is rejected",
    "producer failed",
    "lost",
    "phantom",
    "duplicate",
    "wrong offset",
    "reordered",
    "the log cannot be read",
    "bytes are still charged",
    "bytes below zero",
)
NO_WATCH = Change(
    "pipeline.watch", "            self._suspects = self._find(busy, self._loop.time())\n", "            pass\n"
)

DEFECTS: tuple[Defect, ...] = (
    Defect(
        "mark_before_the_call",
        "what wakes a stage is marked as due before it is scheduled, and no watch heals it (core.md A1)",
        (
            Change(
                "liveness",
                "        if self.handle is None:\n            self.handle = self._loop.call_soon(self._run)\n",
                "        if self.handle is None:\n"
                "            self.handle = asyncio.Handle(self._run, (), self._loop)\n"
                "            self.handle = self._loop.call_soon(self._run)\n",
            ),
            NO_WATCH,
        ),
        STUCK,
        theme=THEME,
    ),
    Defect(
        "mark_before_the_call_is_healed",
        "the same, and the watch heals it (core.md A1)",
        (
            Change(
                "liveness",
                "        if self.handle is None:\n            self.handle = self._loop.call_soon(self._run)\n",
                "        if self.handle is None:\n"
                "            self.handle = asyncio.Handle(self._run, (), self._loop)\n"
                "            self.handle = self._loop.call_soon(self._run)\n",
            ),
        ),
        ("stood still and was healed",),
        theme=THEME,
    ),
    Defect(
        "wish_before_the_call",
        "a wish for metadata is noted before the task is woken",
        (
            Change(
                "cluster.metadata.cache",
                "            self._wake_task()  # first: at the end of the stack it may raise, and would leave a wish that"
                " nothing looks at\n",
                "",
            ),
            Change(
                "cluster.metadata.cache",
                "                self._schedule.hurry()\n        self._interest",
                "                self._schedule.hurry()\n            self._wake_task()\n        self._interest",
            ),
        ),
        ("stood still and was healed",),
        theme=THEME,
    ),
    Defect(
        "alarm_before_the_timer",
        "a topic is marked as having an alarm before the timer is set, and no watch heals it (core.md A1)",
        (
            Change(
                "pipeline.sending.parking",
                "        if not dispatcher.has_alarm:\n            if self._clock()",
                "        if not dispatcher.has_alarm:\n"
                "            dispatcher.has_alarm = True\n"
                "            if self._clock()",
            ),
            NO_WATCH,
        ),
        STUCK,
        theme=THEME,
    ),
    Defect(
        "columns_stay_torn",
        "cells of a record that was not taken stay in its batch (core.md A3)",
        (
            Change(
                "pipeline.partition.batch",
                "        count = self.count\n        del self.values[count:]\n",
                "        return\n        count = self.count\n        del self.values[count:]\n",
            ),
        ),
        TORN,
        theme=THEME,
    ),
    Defect(
        "sends_in_the_middle",
        "what a finalizer sends in the middle of a send is taken at once (core.md A3)",
        (
            Change("pipeline.sending.parking", "            and not self.effects.depth\n        ):", "        ):"),
            Change(
                "pipeline.sending.parking",
                "        is_put_off = self.effects.depth > 0 or bool(self._put_off)\n",
                "        is_put_off = False\n",
            ),
        ),
        (*TORN, *STUCK),
        theme=THEME,
    ),
    Defect(
        "crash_says_not_persisted",
        "after a crash what was written is told NOT_PERSISTED (core.md A2)",
        (
            Change(
                "pipeline.partition.partition_queue",
                "        outcome = Outcome.POSSIBLY if batch.is_written else Outcome.NOT\n",
                "        outcome = Outcome.NOT\n",
            ),
        ),
        ("wrong persistence", "phantom"),
        theme=THEME,
    ),
    Defect(
        "log_lines_raise",
        "a log handler or filter that raises fails what logs (core.md B1)",
        (
            Change(
                "logs",
                "        except BaseException:  # also CancelledError, and the outcomes of a test framework\n"
                "            self._tell_broken()\n",
                "        except ZeroDivisionError:\n            self._tell_broken()\n",
            ),
        ),
        (
            *TORN,
            *STUCK,
            "tasks are left",
            "the loop's exception handler was told",
            "bare DeliberateError",
            "start hangs",
        ),
        theme=THEME,
    ),
    Defect(
        "waking_ends_with_an_interrupt",
        "an exception before the first of those that are woken leaves all asleep",
        (
            Change(
                "pipeline.delivery.waiter",
                "        if woken:\n            again = woken.copy()\n",
                "        if not woken:\n            again = woken.copy()\n",
            ),
        ),
        (*STUCK, "a callback is never called", "tasks are left"),
        theme=THEME,
    ),
    Defect(
        "interrupted_answer_is_lost",
        "an interrupt in the middle of an answer leaves the connection open, and its requests unanswered",
        (
            Change(
                "cluster.connection.connection",
                '            self.close(ConnectionAbortedError(f"{type(interrupt).__name__} came while answers were'
                ' dealt with"))\n',
                "",
            ),
        ),
        STUCK,
        theme=THEME,
    ),
)
