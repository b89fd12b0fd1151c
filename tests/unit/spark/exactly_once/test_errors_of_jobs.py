"""The errors of exactly-once writes: a job is told about its txnVersion, a stream about its batch."""

from __future__ import annotations

import pytest

from aiokprod.spark.exactly_once.errors import CheckpointRewoundError, refusal_error, unfinished_error
from aiokprod.spark.exactly_once.protocol import BatchName, Opening, Refusal, Token

OPENING = Opening(Token(1, 0), BatchName("q", 1))
OLDER, SAME, NEWER = (BatchName("q", number) for number in range(3))
OF_STREAMS = ("batch", "query", "checkpoint", "stream")
REFUSED = [
    (Refusal.REWOUND, OLDER),
    (Refusal.UNFINISHED, NEWER),
    (Refusal.NO_FACTS, SAME),
    (Refusal.NO_FACTS, NEWER),
    (Refusal.NO_FACTS, BatchName("new", 3)),
    (Refusal.OTHER_ROWS, SAME),
]


def test_a_job_with_a_smaller_number_is_told_which_one_is_done() -> None:
    error = refusal_error(Refusal.REWOUND, OPENING, OLDER, "task 0", is_job=True)
    assert isinstance(error, CheckpointRewoundError)
    assert error.message == "task 0: txnVersion 0 was to be written, but txnVersion 1 of this txnAppId is done"
    assert "txnVersion above" in error.advice
    assert error.__notes__ == [error.advice]


@pytest.mark.parametrize(("refusal", "batch"), REFUSED)
def test_a_refused_job_is_told_nothing_about_streams(refusal: Refusal, batch: BatchName) -> None:
    error = refusal_error(refusal, OPENING, batch, "task 0", is_job=True)
    assert not [word for word in OF_STREAMS if word in error.message + error.advice]


@pytest.mark.parametrize(("refusal", "batch"), REFUSED)
def test_a_refused_batch_of_a_stream_is_told_nothing_about_jobs(refusal: Refusal, batch: BatchName) -> None:
    error = refusal_error(refusal, OPENING, batch, "task 0")
    assert f"batch {batch.number}" in error.message
    assert "txnVersion" not in error.message
    assert error.advice == type(error).advice


def test_a_commit_that_leaves_a_part_out_says_whether_a_job_or_a_batch_is_run_again() -> None:
    told = unfinished_error(SAME, 1, 3)
    assert told.message.startswith("batch 1: 1 of the transactions of 3 tasks")
    told = unfinished_error(SAME, 1, 3, is_job=True)
    assert told.message.startswith("the job: 1 of the transactions of 3 tasks")
    assert told.advice.startswith("Run that job again with its txnAppId and txnVersion")
