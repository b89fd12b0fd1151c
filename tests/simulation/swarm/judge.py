"""The judge of a run, once everything is healed and every producer is closed."""

from __future__ import annotations

from collections.abc import Iterable

from aiokprod.errors import (
    AiokprodError,
    BufferFullError,
    DeliveryTimeoutError,
    PartitionOutOfRangeError,
    SendTimeoutError,
    TopicAuthorizationError,
    UnknownTopicError,
)
from aiokprod.model import Persistence
from aiokprod.record_metadata import RecordMetadata
from aiokprod.testing.checker import LogRecord, Outcome, Promise, Sent, check_delivery

from .books import Account, persistence_of
from .judge_handles import judge_handle
from .judge_told import judge_told
from .judge_transactions import judge_transactions
from .scene import Scene

LATE_S = 1.0
EARLY_S = 0.03
PATIENCE_S = 30.0  # beside a request that was lost before all was well: it takes its timeout


def judge(scene: Scene) -> None:
    """Judge the whole world."""
    for life in scene.lives:
        healed = life.producer.metrics()["stalls_healed"]
        if healed and not scene.world.may_be_healed:
            scene.books.wrong("stood still and was healed", f"{healed} times, producer {life.index}")
        caught = life.producer.metrics()["defects_caught"]
        if caught and not scene.world.has_process_faults:
            scene.books.wrong("a defect was caught", f"{caught} times, producer {life.index}")
    for account, future in scene.books.futures:
        if not future.done():
            scene.books.wrong("never settled", f"{account}: its Future")
    if scene.world.is_transactional:
        judge_transactions(scene)
        return
    log = log_of(scene)
    _judge_log(scene, log)
    for account in scene.books.accounts:
        _judge_account(scene, account)
    judge_told(scene)
    _judge_calls(scene)
    for life in scene.lives:
        left = life.producer.metrics()["buffer_used_bytes"]
        if left:
            scene.books.wrong("bytes are still charged", f"{left} of producer {life.index}")


# ---------------------------------------------------------------------- the log
def log_of(scene: Scene) -> list[LogRecord]:
    """Return every record that is or was in the log, by its number."""
    found = [(topic, partition, offset, value) for topic, partition, offset, value in scene.buried]
    for topic in scene.cluster.topics:
        try:
            found += [(r.topic, r.partition, r.offset, r.value) for r in scene.cluster.records(topic)]
        except Exception as unreadable:
            scene.books.wrong("the log cannot be read", f"{topic}: {unreadable!r:.300}")
    records = []
    for topic, partition, offset, value in found:
        word = b"" if value is None else value.split(b" ", 1)[0]
        if word.isdigit():
            records.append(LogRecord(topic, partition, offset, int(word)))
    return records


def promise_of(scene: Scene) -> Promise:
    """Return what the options promise."""
    config = scene.lives[0].producer.config
    if config.acks == 0:
        return Promise.AT_MOST_ONCE
    return Promise.EXACTLY_ONCE if config.enable_idempotence else Promise.AT_LEAST_ONCE


def _judge_log(scene: Scene, log: list[LogRecord]) -> None:
    promise = promise_of(scene)
    sends = [_sent(account) for account in scene.books.accounts]
    unsure = {account.number for account in scene.books.accounts if not _is_told(account)}
    for finding in check_delivery(sends, log, promise=promise, undelivered_keep_order=False, lenience_s=LATE_S):
        kind = str(finding.kind)
        if kind in ("unresolved", "settled twice", "late"):
            continue  # judged by the books
        if finding.identity in unsure and kind != "duplicate":
            continue
        if kind == "duplicate" and not _is_twice_in_one(scene, finding.topic, finding.identity):
            continue  # the other one is in the log of a topic that was deleted before its answer came
        if _is_forgivable(scene, kind, finding.topic):
            continue
        scene.books.wrong(kind, f"{finding}")


def _is_twice_in_one(scene: Scene, topic: str | None, number: object) -> bool:
    """Return whether one log has it twice. A topic that was recreated has several logs, each of which may have the record."""
    if topic is None or not isinstance(number, int):
        return True
    return any(log[number] > 1 for log in (*scene.graves.get(topic, ()), scene.counted(topic)))


def _is_forgivable(scene: Scene, kind: str, topic: str | None) -> bool:
    """Return whether a finding breaks no promise, of the options or of any producer (ledger.md, 4)."""
    config = scene.lives[0].producer.config
    faults = {step.kind for step in scene.world.faults}
    if kind == "lost" and config.acks in (0, 1) and faults:
        return True  # by design
    if topic is not None and scene.was_deleted(topic):
        old = scene.world.cluster.get("kafka_version") in ("2.1", "2.8", "3.9")
        if kind in ("lost", "wrong offset") and (old or promise_of(scene) is not Promise.EXACTLY_ONCE):
            return True
    if promise_of(scene) is Promise.AT_MOST_ONCE and kind == "reordered" and faults:
        return True
    return kind == "wrong offset" and promise_of(scene) is not Promise.EXACTLY_ONCE and bool(faults)


def _is_told(account: Account) -> bool:
    return account.refused is not None or account.record_outcome() is not None or account.final is not None


def _sent(account: Account) -> Sent:
    sent = Sent(account.number, account.topic, account.partition, account.session, sent_at=account.sent_at, settled=1)
    outcome: object = account.refused or account.record_outcome() or account.final
    sent.settled_at = account.settled_at() or account.sent_at
    if isinstance(outcome, RecordMetadata):
        sent.outcome, sent.offset = Outcome.DELIVERED, outcome.offset
        sent.partition = outcome.partition
    elif outcome == "delivered":
        sent.outcome = Outcome.DELIVERED
    elif isinstance(outcome, BaseException):
        sent.error = f"{outcome!r:.200}"
        is_certain = isinstance(outcome, AiokprodError) and outcome.persistence is Persistence.NOT_PERSISTED
        sent.outcome = Outcome.NOT_PERSISTED if is_certain else Outcome.POSSIBLY_PERSISTED
    return sent


# ---------------------------------------------------------------------- one record
def _judge_account(scene: Scene, account: Account) -> None:
    wrong = scene.books.wrong
    if account.delivery is None:
        _judge_final(scene, account)
        return
    if not judge_handle(scene, account):
        return
    error = account.handle_error()
    record_error = account.record_outcome()
    at = account.settled_at()
    assert at is not None
    if isinstance(record_error, AiokprodError):
        _judge_error(scene, account, record_error, at)
    elif isinstance(error, SendTimeoutError):
        pass  # of the handle alone
    if account.due_at is not None and at > account.due_at + LATE_S:
        wrong("settled late", f"{account}: at {at:.3f} s, due at {account.due_at:.3f} s")
    _judge_send_timeout(scene, account, at, error)
    if scene.is_calm:
        _judge_calm(scene, account, at, record_error)
    prompt_s = scene.world.end.get("prompt_s")  # of narrow worlds that say so
    if prompt_s is not None and (since := account.waited_for_since(at)) is not None and at > since + prompt_s:
        wrong("slow once well", f"{account}: awaited since {since:.3f} s, settled at {at:.3f} s")


def _judge_send_timeout(scene: Scene, account: Account, at: float, error: AiokprodError | None) -> None:
    if account.timeout_at is None:
        if isinstance(error, SendTimeoutError):
            scene.books.wrong("timeout that was not asked for", f"{account}: {error!r:.200}")
        return
    if account.detached_at is None and not account.is_handle_alone and at > account.timeout_at + LATE_S:
        scene.books.wrong(
            "per-send timeout is late", f"{account}: at {at:.3f} s, timeout at {account.timeout_at:.3f} s"
        )
    for moment, outcome in account.told:
        if isinstance(outcome, SendTimeoutError) and moment < account.timeout_at - EARLY_S:
            scene.books.wrong("per-send timeout is early", f"{account}: told at {moment:.3f} s")


def _judge_error(scene: Scene, account: Account, error: AiokprodError, at: float) -> None:
    wrong = scene.books.wrong
    life = scene.lives[account.life[0]]
    name = type(error).__name__
    if isinstance(error, SendTimeoutError) and account.timeout_at is not None and at < account.timeout_at - EARLY_S:
        wrong("per-send timeout is early", f"{account}: at {at:.3f} s, due at {account.timeout_at:.3f} s")
    if isinstance(error, DeliveryTimeoutError):
        never_sent = account.delivery is not None and not account.delivery.attempts
        if never_sent and account.due_at is not None and at < account.due_at - EARLY_S:
            wrong("delivery timeout is early", f"{account}: at {at:.3f} s, due at {account.due_at:.3f} s")
        if (
            scene.is_well_since(at - PATIENCE_S - life.request_s - scene.ahead_s(account), life)
            and not scene.hooks_are_slow
        ):
            wrong("timeout in a healthy cluster", f"{account}: {at - scene.healed_at:.1f} s after all was well again")
    block_s = min(life.block_s, life.delivery_s)
    if isinstance(error, BufferFullError) and at < account.sent_at + block_s - EARLY_S:
        if account.via not in ("many",) and "serializer" not in scene.world.hooks:
            wrong("refused room too early", f"{account}: at {at:.3f} s: {error!r:.200}")
    if isinstance(error, PartitionOutOfRangeError) and account.existed and not scene.was_deleted(account.topic):
        wrong("partition out of range that exists", f"{account}: {error!r:.200}")
    if (
        isinstance(error, TopicAuthorizationError)
        and not scene.was_refused_since(account.sent_at)
        and not _may_be_rejected(scene)
    ):
        wrong("refused topic without a refusal", f"{account}: {error!r:.200}")
    if isinstance(error, UnknownTopicError) and not isinstance(error, TopicAuthorizationError):
        has_waited = "is not there after" in str(error) or "no broker has answered for topic" in str(error)
        if has_waited and at < account.sent_at + block_s - EARLY_S:
            if account.life == life.key and not life.was_sabotaged and not _closed_at(scene, account, at):
                wrong("unknown topic too early", f"{account}: at {at:.3f} s: {error!r:.200}")
    if name == "ProducerFailedError" and not life.was_sabotaged:
        wrong("producer failed", f"{account}: {error!r:.300}")
    if name in ("InvalidRecordError", "BrokerRejectedError") and not _may_be_rejected(scene):
        wrong("an innocent record is rejected", f"{account}: {error!r:.300}")


def _closed_at(scene: Scene, account: Account, at: float) -> bool:
    calls = scene.books.calls
    return any(c.kind == "close" and c.life == account.life and c.began <= at + 1e-6 for c in calls)


def _may_be_rejected(scene: Scene) -> bool:
    fails = [step.args for step in scene.world.faults if step.kind == "fail"]
    codes = {args.get("code") for args in fails if args.get("api") != "Metadata"}
    return bool(codes & {"INVALID_RECORD", "POLICY_VIOLATION", "INVALID_TIMESTAMP", "TOPIC_AUTHORIZATION_FAILED"})


def _judge_calm(scene: Scene, account: Account, at: float, outcome: object) -> None:
    """Judge a record of a well cluster: waiters are served at once, and nothing valid fails."""
    if scene.hooks_are_slow or account.topic not in scene.topic_events or not account.existed:
        return
    world, life = scene.world, scene.lives[account.life[0]]
    if scene.is_slow(life):
        return
    late_topic = scene.topic_events[account.topic][0][0]
    waits_since = account.waited_for_since(at)
    served_by = max(account.sent_at, late_topic) + scene.calm_s(life)
    if (
        waits_since is not None
        and account.via in ("send", "try_send")
        and "raise_every" not in world.hooks.get("partitioner", {})
    ):
        if at > max(served_by, waits_since + scene.calm_s(life)) + scene.ahead_s(account):
            scene.books.wrong("slow in calm", f"{account}: awaited since {waits_since:.3f} s, settled at {at:.3f} s")
    elif at > served_by + life.linger_s + 3.0 + scene.ahead_s(account):
        scene.books.wrong("slow in calm", f"{account}: settled at {at:.3f} s")
    if isinstance(outcome, DeliveryTimeoutError | UnknownTopicError):
        is_patient = life.block_s >= scene.calm_s(life) and life.delivery_s >= 3.0 + scene.ahead_s(account)
        if late_topic <= account.sent_at and not life.was_sabotaged and is_patient:
            scene.books.wrong("fails in calm", f"{account}: {outcome!r:.200}")


def _judge_final(scene: Scene, account: Account) -> None:
    """Judge a record of send_many or send_columns, or one that was refused."""
    if isinstance(account.final, AiokprodError) and account.final_at is not None:
        _judge_error(scene, account, account.final, account.final_at)
    elif isinstance(account.final, PartitionOutOfRangeError) and account.existed:
        if not scene.was_deleted(account.topic):
            scene.books.wrong("partition out of range that exists", f"{account}: {account.final!r:.200}")
    elif isinstance(account.final, AiokprodError) and type(account.final).__name__ == "InvalidRecordError":
        if not _may_be_rejected(scene):
            scene.books.wrong("an innocent record is rejected", f"{account}: {account.final!r:.200}")


# ---------------------------------------------------------------------- calls
def _last_taken_at(scene: Scene, account: Account, until: float) -> float:
    """Return the latest time at which a record of a list or of columns was taken: its call takes more when room is free."""
    if account.session[0] not in ("many", "columns"):
        return account.sent_at
    ended = scene.books.calls[int(str(account.session[1]))].ended
    return until if ended is None else min(ended, until)


def _judge_calls(scene: Scene) -> None:
    for call in scene.books.calls:
        if call.kind == "flush" and call.ended is not None and not call.cancelled:
            # A batch that is waited for takes younger records too, as long as it is open.
            # When a record of columns or of a list was taken is not known: it may have waited for room before.
            life = scene.lives[call.life[0]]
            longest_s = life.delivery_s + life.block_s
            accounts = (a for a in scene.books.accounts if a.life == call.life and a.sent_at < call.ended)
            taken = (a.due_at or _last_taken_at(scene, a, call.ended) + longest_s for a in accounts)
            if call.ended > max(call.began, max(taken, default=0.0)) + LATE_S:
                scene.books.wrong("flush is late", f"{call}")
            exact = [a.due_at or 0.0 for a in call.waits_for]
            if scene.world.end.get("flush_is_exact") and call.ended > max(exact, default=call.began) + LATE_S:
                scene.books.wrong("flush is late", f"{call}: it waits for what came later")
        if call.kind == "send_many":
            _judge_many(scene, call_accounts(scene, call.life, call.began), call)


def call_accounts(scene: Scene, life: tuple[int, int], since: float) -> Iterable[Account]:
    """Return records of send_many calls of this life since then."""
    return (a for a in scene.books.accounts if a.via == "many" and a.life == life and a.sent_at >= since)


def _judge_many(scene: Scene, accounts: Iterable[Account], call: object) -> None:
    from .books import Call

    assert isinstance(call, Call)
    taken = call.facts.get("taken_after_failure", 0)
    if taken > 600:
        scene.books.wrong("send_many drains its source", f"{call}: {taken} values after the producer had failed")
    until = call.facts.get("timeout_until")  # of each record from when it was taken
    if until is not None and call.ended is not None and not call.cancelled and call.ended > until + LATE_S:
        scene.books.wrong("send_many's timeout is late", f"{call}")


__all__ = ["judge", "log_of", "persistence_of", "promise_of"]
