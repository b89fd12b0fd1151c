"""The errors of exactly-once writes. Spark shows their texts, so each is complete by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokprod.errors import AiokprodError, advise
from aiokprod.spark.exactly_once.facts import Names
from aiokprod.spark.exactly_once.protocol import BatchName, Opening, Refusal
from aiokprod.wire.codes import ErrorCode


class ExactlyOnceError(AiokprodError):
    """The batch was not written, or not finished. Nothing of it is there twice, and a restart goes on with it."""

    advice = "Mend what the message or the cause names, then restart the query: it goes on with this batch."


class NewerDriverError(ExactlyOnceError):
    """Another driver has taken over the sink id. This one commits nothing more; the newer one finishes what was decided."""

    advice = "Run one query with a sinkId at a time; if two queries are meant to run, give each a sinkId of its own."


class BatchUnfinishedError(ExactlyOnceError):
    """A batch is decided, and a transaction of it is not committed: it was aborted. So the batch is there in part.

    Its timeout has aborted it, or a later attempt of its stage (after a fetch failure) has: both use one transactional id.
    """

    advice = (
        "Run that batch again, by a restart of the query or with the same txnVersion: what is missing is written. Raise"
        " kafka.transaction.timeout.ms if batches take longer."
    )


class ReplayMismatchError(ExactlyOnceError):
    """A batch that is partly committed was run again and brings other rows. Nothing more of it was written."""

    advice = (
        "Find out which rows are missing, and set onReplayMismatch to 'duplicate' for one run, which writes the batch again"
        " although some of its rows are there; or start with a new checkpoint."
    )


class CheckpointRewoundError(ExactlyOnceError):
    """The batch is older than one that is finished; or has its number, and is of another stream or has another number of rows.

    The checkpoint, or the txnVersion, is not the last one.
    """

    advice = (
        "Restore the newest checkpoint; to write the batches again on purpose, use another sinkId or txnAppId. If only the"
        " number of rows differs, and the query itself may cause that (rand(), a join with a table that changes), set"
        " onReplayMismatch to 'skip' for one run: the batch is finished, and nothing more of it is written."
    )


class FactsMissingError(ExactlyOnceError):
    """Nothing is recorded about the batch before this one, so it is not known whether this batch was committed.

    Or it is committed in part, and the record of a part has expired.
    """

    advice = (
        "If it was not written before (the query was at_least_once until now), or may be written twice, set onMissingFacts to"
        " 'write' for one run. Each query needs a sinkId of its own."
    )


def missing_right(code: int | None, names: Names) -> str | None:
    """Return which right is to be granted after a broker's code; None: the code is not about a right of exactly-once writes.

    Args:
        code: of the broker.
        names: of the sink.
    """
    match code:
        case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            what = f"WRITE and DESCRIBE on transactional ids that begin with {names.prefix!r}"
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            what = f"READ on groups that begin with {names.prefix!r}"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            what = f"READ on the marker topic {names.topic!r}, and WRITE and DESCRIBE on the topics that are written"
        case _:
            return None
    return f"Grant this principal {what}: docs/spark.md lists the rights that exactly_once needs."


REFUSALS: Final = {
    Refusal.REWOUND: CheckpointRewoundError,
    Refusal.NO_FACTS: FactsMissingError,
    Refusal.UNFINISHED: BatchUnfinishedError,
    Refusal.OTHER_ROWS: ReplayMismatchError,
    Refusal.OTHER_COUNT: CheckpointRewoundError,
}


OF_JOBS: Final[Mapping[type[ExactlyOnceError], str]] = {
    BatchUnfinishedError: (
        "Run that job again with its txnAppId and txnVersion: what is missing is written. Raise kafka.transaction.timeout.ms if"
        " jobs take longer."
    ),
    ReplayMismatchError: (
        "Find out which rows are missing, and set onReplayMismatch to 'duplicate' for one run, which writes all rows of the job"
        " again although some of them are there; or use another txnAppId."
    ),
    CheckpointRewoundError: (
        "Give a txnVersion above that of the last job; to write these rows again on purpose, use another txnAppId."
    ),
    FactsMissingError: (
        "If its rows were not written before, or may be written twice, set onMissingFacts to 'write' for one run."
    ),
}
"""The advice to a batch job outside of streams, which has a txnAppId and a txnVersion, and neither a query nor a checkpoint."""


def unfinished_error(batch: BatchName, missing: int, tasks: int, *, is_job: bool = False) -> ExactlyOnceError:
    """Return the error of a batch whose commit has left a part out.

    Args:
        batch: that is decided.
        missing: number of transactions that are not committed.
        tasks: of the batch.
        is_job: the batch is a job outside of streams.
    """
    where = "the job" if is_job else f"batch {batch.number}"
    text = (
        f"{where}: {missing} of the transactions of {tasks} tasks are not committed: they were aborted, as they were open for"
        " longer than their timeout, Spark ran their stage again (a fetch failure), or another query uses the sinkId"
    )
    return _advised(BatchUnfinishedError(text), is_job)


def _advised(error: ExactlyOnceError, is_job: bool) -> ExactlyOnceError:
    if is_job:
        advise(error, OF_JOBS[type(error)])
    return error


def refusal_error(
    refusal: Refusal, opening: Opening, batch: BatchName, where: str, rows: int = 0, *, is_job: bool = False
) -> ExactlyOnceError:
    """Return the error of a refused batch.

    Args:
        refusal: why.
        opening: what was known.
        batch: that was refused.
        where: the task, or the commit.
        rows: of the batch, as it was run now.
        is_job: the batch is a job outside of streams: `foreachBatch` has a stream.
    """
    last = opening.last
    kind, query = ("txnVersion", "this txnAppId") if is_job else ("batch", "this query")
    match refusal:
        case Refusal.REWOUND if last == batch:
            text = (
                f"batch {batch.number} was to be written, but another streaming query has written it under this txnAppId: the"
                " checkpoint is a new one"
            )
        case Refusal.REWOUND:
            newest = batch.number if last is None else last.number
            text = f"{kind} {batch.number} was to be written, but {kind} {newest} of {query} is done"
        case Refusal.OTHER_COUNT:
            text = (
                f"batch {batch.number} of this query is done with {opening.rows} rows, and has {rows} now: Spark has planned it"
                " afresh, as the checkpoint is a copy from the batch before, or the query does not make the same rows again"
            )
        case Refusal.UNFINISHED:
            before = "the one before" if last is None else f"{kind} {last.number}"
            text = (
                f"{kind} {batch.number} was to be written, but {before} is only partly committed, as one of its transactions"
                " was aborted: by its timeout, or by a second attempt of its stage"
            )
        case Refusal.NO_FACTS if last is not None and batch.query in opening.earlier:
            text = (
                f"{kind} {batch.number} was to be written, but another query has used the sinkId since this one wrote with it,"
                " so nothing is recorded about this one any more"
            )
        case Refusal.NO_FACTS if opening.unknown and last is not None and last.query == batch.query:
            text = (
                f"{kind} {last.number} was decided days ago, and the records of its parts may have expired"
                " (offsets.retention.minutes, 7 days by default), so it is not known whether all of it is committed"
            )
        case Refusal.NO_FACTS if last == batch:
            text = (
                f"{kind} {batch.number} is partly committed, and the record of the rows that are committed here has expired"
                " (offsets.retention.minutes, 7 days by default), so they cannot be compared"
            )
        case Refusal.NO_FACTS if last is not None and last.query == batch.query:
            text = f"{kind} {batch.number} was to be written, but the last one on record is {kind} {last.number}"
        case Refusal.NO_FACTS:
            text = (
                f"{kind} {batch.number} was to be written, but nothing is recorded about {query}: its records have expired"
                " (offsets.retention.minutes, 7 days by default), or it was not written exactly once with this name before"
            )
        case _:
            text = f"{kind} {batch.number} is partly committed, as a transaction was aborted, and now has other rows"
    return _advised(REFUSALS[refusal](f"{where}: {text}"), is_job)
