"""`TelemetryPusher`: pushes metrics to the brokers that ask for them. One per start of a producer.

It has a task only from the moment that a broker offers telemetry: brokers without a receiver do not list these requests
(KIP-714), and cost nothing. Telemetry never harms the producer: an error waits or ends the telemetry, and is logged once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.errors import AiokprodError, CodecUnavailableError, UnsupportedVersionError
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.records.compression import check_codec, compress
from aiokprod.telemetry.figures import KAFKA, Figures, Snapshot
from aiokprod.telemetry.otlp import encoded
from aiokprod.telemetry.push_schedule import CODECS, Next, PushSchedule, Step, Subscription
from aiokprod.wire.codes import name_of
from aiokprod.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from aiokprod.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

LAST_PUSH_S: Final = 1.0
"""The most that `close` waits for the last push."""


class TelemetryPusher:
    """The telemetry of one start.

    Args:
        client: sends the requests; any broker can answer.
        metrics: what is pushed.
        measure: brings the gauges of the metrics up to date.
        spawn: runs the task.
        make_random: makes the source of the jitter.
        log: of the producer.
        wall: seconds since 1970.
        request_timeout_s: of each request.
        transactional_id: of the producer, which brokers are told.
        caught: takes a defect of telemetry, which ends then: no record depends on it.
    """

    def __init__(
        self,
        client: ClusterClient,
        metrics: Metrics,
        measure: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
        make_random: Callable[[], Random],
        log: StateLog,
        wall: Callable[[], float],
        request_timeout_s: float,
        transactional_id: str | None,
        caught: Callable[[str, Exception], None],
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._measure = measure
        self._spawn = spawn
        self._make_random = make_random
        self._log = log
        self._wall = wall
        self._timeout_s = request_timeout_s
        self._caught = caught
        self._attributes = {} if transactional_id is None else {"transactional_id": transactional_id}
        self._zero, self._began_at = metrics.snapshot(), wall()  # of this start, before its first connection
        self._session: PushSession | None = None  # made when a broker offers telemetry: most never do
        self._is_ending = False

    @property
    def is_pushing(self) -> bool:
        """True while a broker has a subscription for this client."""
        return self._session is not None and self._session.schedule.subscription is not None

    def connected(self, connection: BrokerConnection) -> None:
        """Look whether the broker offers telemetry; then begin, once."""
        if self._session is not None or self._is_ending:
            return
        try:
            for request in (GetTelemetrySubscriptionsRequest, PushTelemetryRequest):
                connection.versions.pick(request.API_KEY, request.MIN_VERSION, request.MAX_VERSION)
        except UnsupportedVersionError:
            return
        schedule = PushSchedule(self._make_random().random)
        figures = Figures(self._metrics.kinds(), self._zero, self._began_at)
        session = PushSession(
            self._client, schedule, figures, self._measured, self._log, self._wall, self._timeout_s, self._attributes
        )
        self._spawn(self._run(session), "aiokprod-telemetry")
        self._session = session

    async def _run(self, session: PushSession) -> None:
        try:
            await session.run()
        except Exception as bug:
            self._caught("telemetry", bug)

    def _measured(self) -> Snapshot:
        self._measure()
        return self._metrics.snapshot()

    async def push_last(self) -> None:
        """Push a last time, as the producer closes; for `LAST_PUSH_S` at most, and whatever happens to it.

        Cancellation: the push is given up.
        """
        self._is_ending = True
        if self._session is not None:
            try:
                await self._session.push_last()
            except Exception as bug:
                self._caught("telemetry", bug)


class PushSession:
    """The requests to the brokers that ask for telemetry. One per start, from the first broker that offers it on.

    Args:
        client: sends the requests.
        schedule: decides what is sent, and when.
        figures: what is pushed.
        measured: returns the metrics at this moment.
        log: of the producer.
        wall: seconds since 1970.
        timeout_s: of each request.
        attributes: of the resource that is measured.
    """

    def __init__(
        self,
        client: ClusterClient,
        schedule: PushSchedule,
        figures: Figures,
        measured: Callable[[], Snapshot],
        log: StateLog,
        wall: Callable[[], float],
        timeout_s: float,
        attributes: dict[str, str],
    ) -> None:
        self.schedule = schedule
        self._client = client
        self._figures = figures
        self._measured = measured
        self._log = log
        self._wall = wall
        self._timeout_s = timeout_s
        self._attributes = attributes
        self._is_ending = False
        self._turn = asyncio.Lock()  # one push at a time: what another has not been answered for would be in both

    async def run(self) -> None:
        """Ask and push until the telemetry ends; cancelled with the producer."""
        due = Next(Step.SUBSCRIBE)
        while due.step is not Step.STOP:
            if due.after_s > 0:
                await asyncio.sleep(due.after_s)
            if self._is_over():
                return
            try:
                async with self._turn:
                    due = await (self._subscribe() if due.step is Step.SUBSCRIBE else self._push())
            except AiokprodError as error:
                self._log.warned("telemetry", f"telemetry is asked for again later: {error}")
                due = self.schedule.unanswered()

    def _is_over(self) -> bool:
        return self._is_ending

    async def _subscribe(self) -> Next:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.schedule.instance_id)
        answer: GetTelemetrySubscriptionsResponse = await self._client.request(request, timeout_s=self._timeout_s)
        return self._told(answer.error_code, self.schedule.subscribed(answer))

    async def _push(self, *, is_last: bool = False) -> Next:
        subscription = self.schedule.subscription
        if subscription is None:
            return Next(Step.SUBSCRIBE)
        snapshot, now = self._measured(), self._wall()
        number, codec = self.schedule.codec(usable_codecs())
        packed = self._packed(subscription, snapshot, now, codec)
        if packed is None:
            return Next(Step.PUSH, subscription.interval_s)  # not even the smallest set fits: as much as is asked for
        request = PushTelemetryRequest(
            client_instance_id=self.schedule.instance_id,
            subscription_id=subscription.id,
            terminating=is_last,
            compression_type=number,
            metrics=packed,
        )
        answer: PushTelemetryResponse = await self._client.request(request, timeout_s=self._timeout_s)
        if not answer.error_code:
            self._figures.pushed(snapshot, now)
        return self._told(answer.error_code, self.schedule.pushed(answer.error_code))

    def _packed(self, subscription: Subscription, snapshot: Snapshot, now: float, codec: str) -> bytes | None:
        """Return the metrics; if they are too large, only those that Kafka has names for; None if these are, too."""
        figures = self._figures
        asked = figures.figures(snapshot, subscription.prefixes, now, is_delta=subscription.is_delta)
        began_at = figures.pushed_at if subscription.is_delta else figures.began_at
        for some in (asked, [figure for figure in asked if figure.name.startswith(KAFKA)]):
            plain = encoded(some, self._attributes, int(began_at * 1e9), int(now * 1e9), is_delta=subscription.is_delta)
            packed = compress(codec, None, plain)
            if len(packed) <= subscription.most_bytes:
                return packed
        return None

    def _told(self, code: int, due: Next) -> Next:
        if code:
            again = "no more is pushed" if due.step is Step.STOP else "asked for again later"
            self._log.warned("telemetry", f"a broker answers telemetry with {name_of(code)}: {again}")
        return due

    async def push_last(self) -> None:
        """Push a last time, for `LAST_PUSH_S` at most."""
        self._is_ending = True
        if self.schedule.subscription is None:
            return
        try:
            async with asyncio.timeout(LAST_PUSH_S), self._turn:
                await self._push(is_last=True)
        except (TimeoutError, AiokprodError):
            pass  # it is the last one: nothing can be made good


def usable_codecs() -> list[str]:
    """Return the codecs whose packages are installed."""
    usable: list[str] = []
    for name in CODECS.values():
        try:
            check_codec(name)
        except CodecUnavailableError:
            continue
        usable.append(name)
    return usable
