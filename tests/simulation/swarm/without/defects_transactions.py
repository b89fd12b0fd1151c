"""Defects of transactions: each is put back by a text, and shown by worlds of transactions."""

from __future__ import annotations

from .needs import both, has, has_fault, has_faults
from .patching import Change, Defect

THEME = "transactions"
DEFECTS: tuple[Defect, ...] = (
    Defect(
        "close_waits_for_the_id",
        "close() while start() asks for the transactional id waits for the timeout of that start",
        (
            Change(
                "life",
                "            await self._starting.stop_starting()\n",
                "            await self._starting.client.close()\n",
            ),
        ),
        ("close takes too long", "close hangs", "start hangs"),
        has("start"),
        theme=THEME,
    ),
    Defect(
        "commits_though_a_record_failed",
        "the failure of a record is left to the caller of its send",
        (
            Change(
                "transactions.machine",
                "                self._make_abortable(Cause(Reason.RECORD_FAILED, code))\n",
                "                pass\n",
            ),
        ),
        ("committed with a failure",),
        theme=THEME,
    ),
    Defect(
        "silence_is_success",
        "an EndTxn that was written and not answered is taken for done",
        (
            Change(
                "transactions.machine_answers",
                "        if written:\n            self._may_come_late(job)\n",
                "        if written and isinstance(job, EndJob):\n"
                "            self._ended(job.verdict, (-1, -1))\n"
                "            return self._go_on(now)\n",
            ),
        ),
        ("lost", "lost offset", "told two outcomes", "aborted record read", "torn"),
        has_faults,
        theme=THEME,
    ),
    Defect(
        "what_is_prepared_is_taken_for_open",
        "the end that another process may have asked for is not thought of",
        (
            Change(
                "transactions.machine_steps",
                "            work.commit_may_be_done = work.is_haunted = True\n",
                "            work.is_haunted = True\n",
            ),
        ),
        ("told two outcomes", "stuck", "aborted record read", "abort is late"),
        has("prepare"),
        theme=THEME,
    ),
    Defect(
        "lets_in_while_committing",
        "records are let in until the end is asked for",
        (
            Change(
                "transactions.transactor",
                "        self.records.take_records(self._may_send() is None, self.refusal)\n",
                "        self.records.take_records(self._may_send() in (None, Refusal.COMMITTING), self.refusal)\n",
            ),
        ),
        ("let in while ending", "accepted outside of a transaction", "lost"),
        theme=THEME,
    ),
    Defect(
        "close_aborts_what_is_prepared",
        "closing ends a transaction whose end is another process's to ask for",
        (
            Change(
                "transactions.transactor",
                "keeps_prepared=keeps_prepared))\n",
                "keeps_prepared=False))\n",
            ),
        ),
        ("told two outcomes", "prepared and aborted"),
        has("prepare"),
        theme=THEME,
    ),
    Defect(
        "an_abort_is_told_as_a_commit",
        "commit_transaction() returns although the coordinator has aborted by its timeout",
        (
            Change(
                "transactions.machine_course",
                "            self._make_abortable(Cause(Reason.TIMED_OUT, code))\n",
                "            self._finish(Outcome.COMMITTED)\n",
            ),
        ),
        ("lost", "lost offset", "told two outcomes"),
        theme=THEME,
    ),
    Defect(
        "late_ends_are_not_thought_of",
        "version 1 keeps its epoch behind a request that may come late",
        (
            Change(
                "transactions.machine_course",
                "        stale = work.is_haunted or (outcome is Outcome.ABORTED and work.is_stamped)\n",
                "        stale = False\n",
            ),
        ),
        (
            "lost",
            "torn",
            "aborted record read",
            "told two outcomes",
            "fenced without a cause",
            "duplicate",
            "stuck",
            "reordered",
        ),
        both(has_faults, has_fault("drop", "hold", "fail", "kill", "reset", "silence", "move")),
        theme=THEME,
    ),
)
