"""`Fencing`: ends the open transaction of an id below `transaction.version` 2, and fences its producer. One per call.

There an EndTxn from outside leaves the producer's epoch as it is: its next request would open another transaction in that
epoch, and its commit would succeed without what was aborted. InitProducerId aborts and fences in one step, as a start does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiokprod.cluster.client import ClusterClient
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    ClusterAuthorizationError,
    TransactionOutcomeUnknownError,
    advise,
)
from aiokprod.model import TransactionOutcome
from aiokprod.randomness import new_random
from aiokprod.transactions.coordinator import FIRST_VERSION, CoordinatorKind, Coordinators, NoAnswer, RetryPace
from aiokprod.transactions.errors_of_causes import error_of
from aiokprod.transactions.hanging import TransactionDescription
from aiokprod.transactions.machine_actions import Cause
from aiokprod.transactions.machine_codes import Kind, Request, judge
from aiokprod.transactions.machine_jobs import NEW_ID
from aiokprod.wire.codes import name_of
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class Fencing:
    """The end of one transaction, with a fence.

    Args:
        client: a started one.
        config: of the client, for timeouts and pauses.
        found: what the coordinator has said of the id: a transaction is open.
        look: asks for that until it is told.
        deadline: loop time, seconds.
    """

    def __init__(
        self,
        client: ClusterClient,
        config: ProducerConfig,
        found: TransactionDescription,
        look: Callable[[], Awaitable[TransactionDescription]],
        deadline: float,
    ) -> None:
        self._coordinators = Coordinators(client, config.request_timeout_ms / 1000)
        self._pace = RetryPace(config, new_random())
        self._found = found
        self._look = look
        self._deadline = deadline
        self._trouble: AiokprodError | None = None

    async def outcome(self) -> TransactionOutcome:
        """Ask until the transaction is aborted; return ABORTED, or COMMITTED if its producer was faster.

        Raises:
            TransactionOutcomeUnknownError: it is not aborted at the deadline, or the principal may not do that; or the
                transaction had ended before, and it is not known how.
        """
        scope = asyncio.timeout_at(self._deadline)
        try:
            async with scope:
                outcome = await self._ask()
        except TimeoutError:
            if not scope.expired():
                raise
            raise self._unknown() from self._trouble
        if outcome is not None:
            return outcome
        error = TransactionOutcomeUnknownError(
            f"the transaction of {self._found.transactional_id!r} had ended before it could be aborted, and its producer is"
            " fenced now; it is not known whether it was committed"
        )
        advise(error, "Read the records of the transaction to learn whether they are visible.")
        raise error

    async def _ask(self) -> TransactionOutcome | None:
        """Take the id until that has aborted the transaction; None: nothing was open any more."""
        name, attempt = self._found.transactional_id, 0
        message = InitProducerIdRequest(name, self._found.timeout_ms, *NEW_ID)
        while True:
            attempt += 1
            answer: InitProducerIdResponse | NoAnswer = await self._coordinators.ask(
                CoordinatorKind.TRANSACTION, name, message, FIRST_VERSION[InitProducerIdRequest]
            )
            kind = self._kind(answer)
            if kind is Kind.DONE:
                return None
            if kind is Kind.FENCED or kind is Kind.FATAL:
                raise self._unknown() from self._trouble
            if kind is Kind.MOVED:
                self._coordinators.forget(CoordinatorKind.TRANSACTION, name)
            # A coordinator that aborts says "later", and has a new epoch: the producer is fenced (broker: 9.8). It says so too
            # where the producer has just ended the transaction.
            try:
                outcome = outcome_of(self._found, await self._look())
            except AiokprodError as error:
                self._trouble = error
                raise self._unknown() from error
            if outcome is not None:
                return outcome
            pause = self._pace.concurrent_s if kind is Kind.CONCURRENT else self._pace.usual_s
            await asyncio.sleep(pause(attempt))

    def _kind(self, answer: InitProducerIdResponse | NoAnswer) -> Kind:
        if isinstance(answer, NoAnswer):
            self._trouble = answer.error
            return Kind.MOVED if answer.code is None else judge(Request.INIT_PRODUCER_ID, answer.code).kind
        if answer.error_code:
            self._trouble = self._refused(answer.error_code)
        return judge(Request.INIT_PRODUCER_ID, answer.error_code).kind

    def _refused(self, code: int) -> AiokprodError:
        name = self._found.transactional_id
        found = error_of(Cause(judge(Request.INIT_PRODUCER_ID, code).reason, code), name)
        if isinstance(found, ClusterAuthorizationError):
            return found
        return BrokerAnswerError(f"the coordinator of {name!r} answered {name_of(code)}", code=code)

    def _unknown(self) -> TransactionOutcomeUnknownError:
        trouble = self._trouble
        why = "" if trouble is None else f": {trouble.message}"
        error = TransactionOutcomeUnknownError(
            f"it is not known how the transaction of {self._found.transactional_id!r} ended{why}",
            code=None if trouble is None else trouble.code,
        )
        advise(error, "Call it again; if no transaction is open any more, it says so.")
        return error

    def __repr__(self) -> str:
        return f"<Fencing of {self._found.transactional_id!r}>"


_ENDS: Final = {
    "PrepareEpochFence": TransactionOutcome.ABORTED,
    "PrepareAbort": TransactionOutcome.ABORTED,
    "CompleteAbort": TransactionOutcome.ABORTED,
    "PrepareCommit": TransactionOutcome.COMMITTED,
    "CompleteCommit": TransactionOutcome.COMMITTED,
}


def outcome_of(before: TransactionDescription, after: TransactionDescription) -> TransactionOutcome | None:
    """Return how a transaction that was open has ended; None: it has not, or it is not the last one of its id any more.

    Args:
        before: of the id, when it was open.
        after: of the id, now.
    """
    if after.producer_id != before.producer_id or after.started_ms is None or after.started_ms != before.started_ms:
        return None
    return _ENDS.get(after.state)
