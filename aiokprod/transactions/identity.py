"""`ProducerIdKeeper`: gets producer ids from the cluster, for an idempotent producer without transactions.

One per producer. An id it hands out was never handed out before and may serve any number of partitions; what each of
them makes of it (epochs, sequences) is the ledger's matter (`# ledger: R2`).

Invariants: at most one request at a time, whoever asks; an answer that says "later", or none, is asked for again, with
backoff, until the caller gives up; an answer that says "never" ends it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from aiokprod.backoff import Backoff
from aiokprod.chance import new_random
from aiokprod.cluster.client import ClusterClient
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    ClusterAuthorizationError,
    ProtocolError,
    UnsupportedVersionError,
)
from aiokprod.logs import StateLog
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

LATER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,  # nothing is lost by asking again: an id nobody uses does no harm
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""A new cluster answers 14 for its first moments (`# broker: 9.2`)."""

SHORTEST_BACKOFF_S: Final = 0.01
"""A backoff of 0 ms shall not become a busy loop."""

LARGEST_TIMEOUT_MS: Final = 2**31 - 1
"""Of a transaction; without one the broker does not look at it."""


@dataclass(frozen=True, slots=True)
class Later:
    """No id now, because of this; asking again may help."""

    error: AiokprodError


class ProducerIdKeeper:
    """Source of producer ids.

    Args:
        client: of the cluster; any broker can answer.
        config: request timeout and backoff.
        random: for jitter.
        sleep: waits so many seconds.
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
        self._turn = asyncio.Lock()  # held across awaits: it is what keeps requests one at a time
        self._log = StateLog("producer id", client_id=config.client_id)
        self.last_error: AiokprodError | None = None  # of the last attempt; None once one succeeds

    async def fresh(self) -> tuple[int, int]:
        """A producer id nobody used, and its epoch, 0. Waits for as long as the cluster says "later", or nothing.

        Raises:
            ClusterAuthorizationError: the principal may not write idempotently (31, 53; `# faults: I23`).
            UnsupportedVersionError: the brokers do not know idempotent producers (35).
            BrokerAnswerError: any other refusal; `code` says which.

        Cancellation: this is how to give up (`# faults: I22`); an id may have been handed out that nobody will use.
        """
        async with self._turn:
            attempt = 0
            while True:
                outcome = await self._ask()
                if isinstance(outcome, tuple):
                    self.last_error = None
                    return outcome
                self.last_error = outcome.error
                self._log.warned(type(outcome.error).__name__, f"no producer id yet: {outcome.error}")
                attempt += 1
                await self._sleep(self._backoff.delay_s(attempt, self._random.random()))

    async def _ask(self) -> tuple[int, int] | Later:
        """One request to one broker. Raises what no repetition will mend."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=LARGEST_TIMEOUT_MS)
        try:
            answer: InitProducerIdResponse = await self._client.request(request, timeout_s=self._timeout_s)
        except UnsupportedVersionError:
            raise
        except AiokprodError as error:
            return Later(error)
        return judge(answer)


def judge(answer: InitProducerIdResponse) -> tuple[int, int] | Later:
    """What an answer means; raises if it means "never"."""
    code = answer.error_code
    if code == ErrorCode.NONE:
        if answer.producer_id >= 0 and answer.producer_epoch >= 0:
            return answer.producer_id, answer.producer_epoch
        # faults: H19
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
