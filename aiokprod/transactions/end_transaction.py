"""`end_transaction`: ends a transaction that another process has prepared, and tells how it ended.

    EndTxn ──> done, or ended otherwise                       ──> the outcome
           ──> not known yet (moved, concurrent, no answer)   ──> again, until the timeout
           ──> the id has gone on, or asking is refused       ──> the log of its partitions ──> the outcome, or unknown

InitProducerId is never sent: it would abort what is to be committed (broker: 11.4).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Unpack, cast

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.config.call_timeouts import check_timeout, checked_seconds
from aiokprod.config.option_checks import shown
from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    ConfigError,
    TransactionOutcomeUnknownError,
    UsageError,
    advise,
)
from aiokprod.metrics import Metrics
from aiokprod.model import TransactionOutcome
from aiokprod.randomness import new_random
from aiokprod.transactions.coordinator import (
    FIRST_VERSION,
    SECOND_VERSION,
    CoordinatorKind,
    Coordinators,
    NoAnswer,
    RetryPace,
)
from aiokprod.transactions.ending_codes import Answer, LogSays, answer_of, outcome_of
from aiokprod.transactions.errors_of_causes import error_of
from aiokprod.transactions.log_verdict import ask_log
from aiokprod.transactions.machine_actions import Cause, Mode, Outcome, Reason, Verdict
from aiokprod.transactions.prepared import PreparedTransaction
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.end_txn import EndTxnRequest

ADVICE: Final = "Call it again with the same arguments: that does no harm, and tells what happened."
_AUTHORIZATION: Final = frozenset(
    {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
)


async def end_transaction(
    servers: str | Sequence[str] | ProducerConfig,
    prepared: PreparedTransaction,
    commit: bool = True,
    *,
    timeout: float = 60.0,
    **options: Unpack[ProducerOptions],
) -> bool:
    """End a transaction that `Producer.prepare_transaction` has prepared, from any process.

        if not await end_transaction("localhost:9092", prepared, commit=True):
            ...  # it was aborted: write its records again

    Any number of processes may call it, any number of times: the first verdict counts, and all are told the same. The producer
    need not run any more. Source: KIP-98; measured on brokers: docs/broker_rules.md.

    Args:
        servers: `"host:port,host:port"`, a list of `"host:port"`, or a `ProducerConfig`, whose connection options are used.
        prepared: the transaction.
        commit: True commits, False aborts.
        timeout: seconds for everything, the connection included.
        **options: the options of `ProducerConfig`.

    Returns:
        True if the transaction is committed, False if it is aborted: now, or before by another call, by the coordinator's
        timeout, or by a `start()` with its id. So False after `commit=True`, and True after `commit=False`, are possible.

    Raises:
        TransactionOutcomeUnknownError: it was not found out; the cause says why. Call it again. The transaction is not
            committed but by the calls of this function and of the producer that has prepared it.
        UsageError: `prepared` is no PreparedTransaction, or `commit` is no bool; nothing was asked for.
        ConfigError: an option or the timeout is wrong; nothing was asked for.

    Cancellation: stops asking; the coordinator may have ended the transaction.
    """
    if not isinstance(cast("object", prepared), PreparedTransaction):
        raise UsageError(
            f"{shown(prepared)} is no PreparedTransaction: PreparedTransaction.from_json() makes one of JSON"
        )
    if not isinstance(cast("object", commit), bool):
        raise UsageError(f"commit is {shown(commit)}: it must be True or False")
    config = connection_config(servers, "end_transaction()", timeout, **options)
    if not prepared.is_begun:
        return commit  # nothing was written, and nothing has to be ended
    client = ClusterClient(config, Metrics(), SilentListener())
    deadline = asyncio.get_running_loop().time() + timeout
    verdict = Verdict.COMMIT if commit else Verdict.ABORT
    try:
        try:
            await client.start(timeout)
        except ConfigError:
            raise
        except AiokprodError as error:
            raise _unknown(prepared, error) from error
        outcome = await Ending(client, config, prepared, verdict, deadline).outcome()
    finally:
        await client.close()
    return outcome is TransactionOutcome.COMMITTED


def connection_config(
    servers: str | Sequence[str] | ProducerConfig, call: str, timeout: object, **options: Unpack[ProducerOptions]
) -> ProducerConfig:
    """Return the config of a client that asks questions: it creates no topic.

    Raises:
        ConfigError: an option is wrong, or the timeout is no number of seconds.
    """
    if isinstance(servers, ProducerConfig):
        config = servers.replace(**options) if options else servers
    else:
        options["bootstrap_servers"] = servers
        config = ProducerConfig.of(**options)
    check_timeout(f"timeout of {call}", timeout)
    if timeout is None:
        raise ConfigError(f"timeout of {call} is None: it must be a number of seconds")
    checked_seconds(timeout)
    return config.replace(allow_auto_create_topics=False)  # to ask for a topic must not create it


class Ending:
    """The end of one transaction, by a stranger. One per call.

    Args:
        client: a started one.
        config: of the client, for timeouts and pauses.
        prepared: the transaction.
        verdict: what is asked for.
        deadline: loop time, seconds.
    """

    def __init__(
        self,
        client: ClusterClient,
        config: ProducerConfig,
        prepared: PreparedTransaction,
        verdict: Verdict,
        deadline: float,
    ) -> None:
        self._client = client
        self._coordinators = Coordinators(client, config.request_timeout_ms / 1000)
        self._pace = RetryPace(config, new_random())
        self._prepared = prepared
        self._mode = Mode(prepared.version)
        self._verdict = verdict
        self._deadline = deadline
        self._trouble: AiokprodError | None = None

    async def outcome(self) -> TransactionOutcome:
        """Ask until the outcome is known.

        Raises:
            TransactionOutcomeUnknownError: it is not known at the deadline, or cannot be found out.
        """
        scope = asyncio.timeout_at(self._deadline)
        try:
            async with scope:
                return TransactionOutcome((await self._ask()).value)
        except TimeoutError:
            if not scope.expired():
                raise
        raise _unknown(self._prepared, self._trouble) from self._trouble

    async def _ask(self) -> Outcome:
        attempt = 0
        while True:
            attempt += 1
            answer = await self._end_txn()
            outcome = outcome_of(answer, self._mode, self._verdict)
            if outcome is not None:
                return outcome
            if answer is Answer.TAKEN or answer is Answer.REFUSED:
                return await self._by_the_log(answer)
            if answer is Answer.MOVED:
                self._coordinators.forget(CoordinatorKind.TRANSACTION, self._prepared.transactional_id)
            await asyncio.sleep(self._pause(answer)(attempt))

    def _pause(self, answer: Answer) -> Callable[[int], float]:
        return self._pace.concurrent_s if answer is Answer.CONCURRENT else self._pace.usual_s

    async def _end_txn(self) -> Answer:
        prepared = self._prepared
        message = EndTxnRequest(
            prepared.transactional_id, prepared.producer_id, prepared.epoch, self._verdict is Verdict.COMMIT
        )
        versions = SECOND_VERSION if self._mode is Mode.VERSION_2 else FIRST_VERSION
        found: Any = await self._coordinators.ask(
            CoordinatorKind.TRANSACTION, prepared.transactional_id, message, versions[EndTxnRequest]
        )
        if isinstance(found, NoAnswer):
            self._trouble = found.error
            return Answer.AGAIN if found.code is None else self._judged(found.code)
        return self._judged(found.error_code)

    def _judged(self, code: int) -> Answer:
        answer = answer_of(code)
        if answer is not Answer.DONE:
            self._trouble = _error_of_code(code, self._prepared.transactional_id)
        return answer

    async def _by_the_log(self, answer: Answer) -> Outcome:
        """Find the outcome in the log of a partition. As long as the transaction is open there, its end may be due."""
        attempt = 0
        while True:
            attempt += 1
            says = await ask_log(self._client, self._prepared, self._deadline)
            if says is LogSays.COMMITTED:
                return Outcome.COMMITTED
            if says is LogSays.ABORTED:
                return Outcome.ABORTED
            if says is LogSays.NOTHING or answer is Answer.REFUSED:
                raise _unknown(self._prepared, self._trouble) from self._trouble
            await asyncio.sleep(self._pace.usual_s(attempt))


def _unknown(prepared: PreparedTransaction, trouble: AiokprodError | None) -> TransactionOutcomeUnknownError:
    why = "" if trouble is None else f": {trouble.message}"
    error = TransactionOutcomeUnknownError(
        f"it is not known how the transaction of {prepared.transactional_id!r} ended{why}",
        code=None if trouble is None else trouble.code,
    )
    advise(error, ADVICE)
    return error


def _error_of_code(code: int, transactional_id: str) -> AiokprodError:
    if code in _AUTHORIZATION:
        return error_of(Cause(Reason.NOT_AUTHORIZED, code), transactional_id)
    return BrokerAnswerError(f"the coordinator of {transactional_id!r} answered {name_of(code)}", code=code)
