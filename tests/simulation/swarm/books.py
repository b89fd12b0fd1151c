"""The books of a run: requests to the producers, and their outcomes: accounts of records, reports, calls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from aiokprod import Delivery, RecordMetadata
from aiokprod.errors import AiokprodError
from aiokprod.model import CloseReport, Persistence
from aiokprod.pipeline.delivery.unasked_failures import GRACE_S
from aiokprod.testing.checker import TransactionRun

BOTH = "either"
"""Whether a listener was there when the record failed cannot be told: it changed in the same moment."""


@dataclass(slots=True, eq=False)
class Account:
    """One record that a producer was given.

    Attributes:
        number: its name, and its place in the order of the calls.
        life: (producer, start).
        via: send, try_send, many, columns.
        due_at: its delivery timeout; timeout_at: its per-send timeout.
        listeners: (time, how many more or less from then on).
        told: what waiters and callbacks heard: (time, error or metadata or "cancelled").
        final: an outcome that was told other than by a Delivery.
        is_in_report: a report of send_columns tells how many of them have failed.
        gave_up: its caller has gone, and heard nothing.
        is_gathered: asyncio's gather keeps it until all of its awaitables are done.
        session: order is promised within one.
        run: the transaction that was open when it was sent.
    """

    number: int
    topic: str
    partition: int | None
    life: tuple[int, int]
    via: str
    size: int
    sent_at: float
    due_at: float | None = None
    timeout_at: float | None = None
    delivery: Delivery | None = None
    listeners: list[tuple[float, int]] = field(default_factory=list)
    told: list[tuple[float, object]] = field(default_factory=list)
    callbacks: int = 0
    callback_calls: int = 0
    refused: BaseException | None = None
    final: AiokprodError | str | None = None
    final_at: float | None = None
    gave_up: bool = False
    is_gathered: bool = False
    detached_at: float | None = None
    released: bool = False
    is_in_report: bool = False
    existed: bool = True
    room_since: float | None = None
    first_seen: tuple[str, ...] | None = None
    session: tuple[object, ...] = ()
    run: TransactionRun | None = None

    @property
    def is_known(self) -> bool:
        """Return whether its outcome can be learnt."""
        return self.delivery is not None or self.refused is not None or self.final is not None

    def listening_at(self, moment: float | None) -> bool | str:
        """Return whether a listener was there when it failed."""
        if moment is None:
            return BOTH
        if any(abs(at - moment) < 1e-6 for at, _ in self.listeners):
            return BOTH
        return sum(change for at, change in self.listeners if at < moment) > 0

    def may_have_asked(self, failed_at: float | None) -> bool:
        """Return whether a listener may have come in time for a failure that none was there for."""
        return failed_at is None or any(
            change > 0 and failed_at - 1e-6 <= at <= failed_at + GRACE_S + 1e-3 for at, change in self.listeners
        )

    def waited_for_since(self, moment: float) -> float | None:
        """Return the time since when there is a listener without a gap; None: there was none just before the moment.

        A record that waits for its partition's batch is urgent only while it has a listener.
        """
        count, since = 0, None
        for at, change in self.listeners:
            if at >= moment - 1e-6:
                break
            count += change
            if count <= 0:
                since = None
            elif since is None:
                since = at
        return since

    def record_outcome(self) -> AiokprodError | RecordMetadata | None:
        """Return the record's own outcome, whatever its handle was told; None: none yet, or not to be learnt."""
        if self.delivery is None:
            return self.final if isinstance(self.final, AiokprodError) else None
        holder, index = self.delivery._position()
        if not holder.is_settled(index):
            return None
        return holder.error(index) or holder.metadata(index)

    def settled_at(self) -> float | None:
        """Return when the record itself got its outcome."""
        if self.delivery is None:
            return self.final_at
        holder, index = self.delivery._position()
        if not holder.is_settled(index):
            return None
        segment_of = getattr(holder, "segment_of", None)
        place = segment_of(index) if segment_of is not None else holder
        at = getattr(place, "settled_at", None)
        return at if isinstance(at, float) else self.sent_at + holder.latency_s(index)

    def handle_error(self) -> AiokprodError | None:
        """Return the error of the handle, which may have an outcome of its own (a per-send timeout after the stamp)."""
        delivery = self.delivery
        if delivery is None or not delivery.done() or delivery.cancelled():
            return None
        return delivery.exception()

    @property
    def is_handle_alone(self) -> bool:
        """Return whether the handle has failed while the record goes on, or went on."""
        watch = None if self.delivery is None else getattr(self.delivery, "_watch", None)
        return watch is not None and watch.error is not None

    def seen(self) -> tuple[str, ...] | None:
        """Return the outcome of the handle as a value that can be compared later, without asking the handle for it."""
        delivery = self.delivery
        if delivery is None or not delivery.done() or delivery.cancelled():
            return None
        watch = getattr(delivery, "_watch", None)
        return shown(watch.error if watch is not None and watch.error is not None else self.record_outcome())

    def said(self) -> tuple[str, ...] | None:
        """Return the same as the handle says it to its caller."""
        delivery = self.delivery
        if delivery is None or not delivery.done() or delivery.cancelled():
            return None
        return shown(delivery.exception() or delivery.result())

    def __str__(self) -> str:
        place = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        state = "" if self.delivery is None else f", {self.delivery!r}"
        by = f" by producer {self.life[0]}" if self.life[0] else ""
        return f"record {self.number} ({self.via}{by}, {self.size} bytes, to {place} at {self.sent_at:.4f} s{state})"


def shown(outcome: object) -> tuple[str, ...]:
    """Return an outcome as a value."""
    if isinstance(outcome, RecordMetadata):
        return ("delivered", str(outcome.partition), str(outcome.offset))
    if isinstance(outcome, AiokprodError):
        return (type(outcome).__name__, persistence_of(outcome))
    return (str(outcome),)


def persistence_of(error: BaseException) -> str:
    """Return the persistence of an error as a word."""
    persistence = getattr(error, "persistence", None)
    return persistence.name if isinstance(persistence, Persistence) else "-"


@dataclass(slots=True, eq=False)
class Call:
    """A call that takes time: flush, close, start, send_many ...

    Attributes:
        waits_for: a flush: the records that were accepted before.
        late_after: it is to have ended by then (loop time).
    """

    kind: str
    life: tuple[int, int]
    began: float
    ended: float | None = None
    error: BaseException | None = None
    cancelled: bool = False
    result: object = None
    waits_for: list[Account] = field(default_factory=list)
    late_after: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        end = "still under way" if self.ended is None else f"ended at {self.ended:.4f} s"
        outcome = " cancelled" if self.cancelled else "" if self.error is None else f" with {self.error!r:.300}"
        return f"{self.kind} {self.facts or ''} of {self.life}, called at {self.began:.4f} s, {end}{outcome}"


@dataclass(slots=True)
class Closing:
    """One close of a life, as judged: the first call of it."""

    call: Call
    failed_before: int
    report: CloseReport | None = None


class Books:
    """The books of one run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.accounts: list[Account] = []
        self.calls: list[Call] = []
        self.reports: dict[int, list[tuple[float, AiokprodError]]] = {}  # on_delivery_error, by producer
        self.outcomes: dict[int, list[tuple[int, object]]] = {}  # on_outcome, by producer: (number, outcome)
        self.wrongs: list[tuple[str, str]] = []
        self.runs: dict[int, TransactionRun] = {}  # the last transaction of each producer
        self.futures: list[tuple[Account, Future[Any]]] = []  # of threads
        self.misused = -1  # number of the record that is being sent with a value that may not say it
        self.nested = False  # a partitioner sends in the middle of another send

    def wrong(self, kind: str, text: str) -> None:
        """Add a finding, with the current time."""
        if sum(kind == known for known, _ in self.wrongs) < 3:
            self.wrongs.append((kind, f"at {self.clock():.4f} s: {text}"))

    def account(self, topic: str, partition: int | None, life: tuple[int, int], via: str, size: int) -> Account:
        """Add the next record; its number is its identity."""
        account = Account(len(self.accounts), topic, partition, life, via, size, self.clock())
        # What a partitioner sends may be in a batch before the record it was asked about: it has no place in the order.
        account.session = ("nested", account.number) if self.nested else life
        account.run = self.runs.get(life[0])
        self.accounts.append(account)
        return account

    def call(self, kind: str, life: tuple[int, int], **facts: Any) -> Call:
        """Note that a call begins."""
        call = Call(kind, life, self.clock(), facts=facts)
        self.calls.append(call)
        return call

    def listen(self, account: Account) -> None:
        """Note that a listener waits for the Delivery from now on."""
        account.listeners.append((self.clock(), 1))

    def leave(self, account: Account) -> None:
        """Note that a listener left without an answer."""
        account.listeners.append((self.clock(), -1))

    def hear(self, account: Account, outcome: object) -> None:
        """Note that a listener was told. An exception's traceback is dropped, as its frames hold the record's Delivery."""
        if isinstance(outcome, BaseException):
            outcome.__traceback__ = None
        account.told.append((self.clock(), outcome))
