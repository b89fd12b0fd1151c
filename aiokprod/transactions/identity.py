"""`ProducerIdKeeper`: gets producer ids from the cluster, for an idempotent producer without transactions.

One per producer. Every id is new, and may serve any number of partitions; the epochs and sequence numbers of each partition
are the ledger's business (`# ledger: R2`).

Invariants: at most one request at a time, however many callers wait; an answer that means "later", or no answer, is asked
for again, with backoff, until the caller gives up; an answer that means "never" ends the attempts at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from aiokprod.backoff import SHORTEST_BACKOFF_S, Backoff
from aiokprod.cluster.client import ClusterClient
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    BootstrapError,
    BrokerAnswerError,
    ClusterAuthorizationError,
    ProtocolError,
    UnsupportedVersionError,
)
from aiokprod.logs import StateLog
from aiokprod.randomness import new_random
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

LATER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,  # asking again is safe: an unused id does no harm
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes after which asking again may help. A new cluster first answers COORDINATOR_LOAD_IN_PROGRESS (`# broker: 9.2`)."""

LARGEST_TIMEOUT_MS: Final = 2**31 - 1
"""The transaction timeout of a request without a transaction: the broker ignores it."""


class Later:
    """The outcome of a request that got no id now; asking again may help."""

    def __init__(self, error: AiokprodError) -> None:
        self.error = error


class ProducerIdKeeper:
    """The source of producer ids of one producer.

    Args:
        client: sends the requests; any broker can answer.
        config: request timeout and backoff.
        random: for jitter.
        sleep: waits for the given number of seconds.
    """

    def __init__(
        self,
        client: ClusterClient,
        config: ProducerConfig,
        *,
        random: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._timeout_s = config.request_timeout_ms / 1000
        least_s, most_s = config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000
        self._backoff = Backoff(max(least_s, SHORTEST_BACKOFF_S), max(most_s, SHORTEST_BACKOFF_S))
        self._random = new_random() if random is None else random
        self._sleep = sleep
        self._turn = asyncio.Lock()  # held across awaits: keeps requests one at a time
        self._log = StateLog("producer id", client_id=config.client_id)
        self.last_error: AiokprodError | None = None  # of the last attempt; None once one succeeds

    async def fresh(self) -> tuple[int, int]:
        """Get an unused producer id and its epoch, 0; wait as long as the cluster answers "later", or not at all.

        Raises:
            ClusterAuthorizationError: the principal may not write idempotently (CLUSTER_AUTHORIZATION_FAILED,
                TRANSACTIONAL_ID_AUTHORIZATION_FAILED; `# faults: I23`).
            UnsupportedVersionError: the brokers do not support idempotent producers (UNSUPPORTED_VERSION).
            BrokerAnswerError: any other refusal; `code` says which.

        Cancellation: ends the attempts (`# faults: I22`); an id may have been given out that is never used.
        """
        async with self._turn:
            attempt = 0
            while True:
                outcome = await self._ask()
                if isinstance(outcome, tuple):
                    self.last_error = None
                    return outcome
                self.last_error = outcome.error
                if not isinstance(outcome.error, BootstrapError):  # no broker answers: the cluster tells that
                    self._log.warned(type(outcome.error).__name__, f"no producer id yet: {outcome.error}")
                attempt += 1
                await self._sleep(self._backoff.delay_s(attempt, self._random.random()))

    async def _ask(self) -> tuple[int, int] | Later:
        """Send one request to one broker; raise an error after which asking again cannot help."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=LARGEST_TIMEOUT_MS)
        try:
            answer: InitProducerIdResponse = await self._client.request(request, timeout_s=self._timeout_s)
        except UnsupportedVersionError:  # the brokers are too old: asking again cannot help
            raise
        except AiokprodError as error:
            return Later(error)
        return judge(answer)


def judge(answer: InitProducerIdResponse) -> tuple[int, int] | Later:
    """Return the meaning of an answer, or raise if the answer means "never"."""
    code = answer.error_code
    if code == ErrorCode.NONE:
        if answer.producer_id >= 0 and answer.producer_epoch >= 0:
            return answer.producer_id, answer.producer_epoch
        # faults: H19: a broken broker gives out a negative id; another broker may answer well
        return Later(
            ProtocolError(f"a broker handed out producer id {answer.producer_id}, epoch {answer.producer_epoch}")
        )
    text = f"the cluster gives no producer id: {name_of(code)}"
    if code in LATER:
        return Later(BrokerAnswerError(text, code=code))
    if code in (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        raise ClusterAuthorizationError(text, code=code)
    if code == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersionError(text, code=code)
    raise BrokerAnswerError(text, code=code)
