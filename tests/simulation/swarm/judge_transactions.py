"""The judge of transactional worlds: what readers of committed records see, what each call was told, and each handle."""

from __future__ import annotations

from aiokprod import TransactionOutcome
from aiokprod.errors import AiokprodError, PartitionerError, RecordRecalledError, SerializationError, UsageError
from aiokprod.model import Persistence
from aiokprod.record_metadata import RecordMetadata
from aiokprod.testing.checker import LogRecord, Outcome, Sent, check_transactions

from .books import Account
from .judge_handles import judge_handle
from .scene import Scene

LATE_S = 1.0
NEVER_MS = 900_000


def judge_transactions(scene: Scene) -> None:
    """Judge a world whose producers write in transactions."""
    for account in scene.books.accounts:
        if account.delivery is not None and judge_handle(scene, account):
            _judge_account(scene, account)
    _judge_outcomes(scene)
    _judge_committed(scene)
    _judge_fences(scene)
    for life in scene.lives:
        if left := life.producer.metrics()["buffer_used_bytes"]:
            scene.books.wrong("bytes are still charged", f"{left} of producer {life.index}")


def _judge_account(scene: Scene, account: Account) -> None:
    outcome, at = account.record_outcome(), account.settled_at()
    if isinstance(outcome, AiokprodError) and outcome.persistence is not Persistence.NOT_PERSISTED:
        scene.books.wrong("persistence in a transaction", f"{account}: {outcome!r:.200}")
    if account.run is None:
        scene.books.wrong("accepted outside of a transaction", f"{account}")
    if account.due_at is not None and at is not None and at > account.due_at + LATE_S:
        scene.books.wrong("settled late", f"{account}: at {at:.3f} s, due at {account.due_at:.3f} s")


# ---------------------------------------------------------------------- what was told
def _judge_outcomes(scene: Scene) -> None:
    """Check that all callers and processes were told the same of a transaction."""
    for deal in scene.deals:
        outcome = deal.transaction.outcome
        told = set(deal.told) | ({outcome} if outcome not in (None, TransactionOutcome.UNKNOWN) else set())
        if len(told) > 1:
            scene.books.wrong("told two outcomes", f"{deal.run.name}: {outcome}, and {deal.told}")
        deal.run.outcome = next(iter(told), TransactionOutcome.UNKNOWN)
        is_kept = deal.life == scene.lives[deal.life[0]].key and not deal.is_abort_asked and not _may_be_fenced(scene)
        if is_kept and deal.prepared is not None and deal.run.outcome is TransactionOutcome.ABORTED:
            scene.books.wrong(
                "prepared and aborted", f"{deal.run.name}: {deal.prepared}, and no process has asked for it"
            )


def _judge_fences(scene: Scene) -> None:
    """Check that a producer was fenced by another instance alone, or by its own timeout."""
    if scene.fences and not _may_be_fenced(scene):
        scene.books.wrong("fenced without a cause", f"producer {scene.fences[0][0]}: {scene.fences[0][1]}")


def _may_be_fenced(scene: Scene) -> bool:
    """Return whether another instance has the id, or transactions have a short timeout."""
    options = scene.world.options
    is_shared = scene.world.producers > 1 and "{index}" not in options["transactional_id"]
    return is_shared or options.get("transaction_timeout_ms") != NEVER_MS


# ---------------------------------------------------------------------- the log
def _judge_committed(scene: Scene) -> None:
    runs = {id(deal.run): deal.run for deal in scene.deals}
    for account in scene.books.accounts:
        if account.run is None or account.refused is not None or id(account.run) not in runs:
            continue
        sent = _sent(account)
        account.run.sends.append(sent)
        if _is_left_out(account):
            account.run.left_out.add(sent.identity)
    log: list[LogRecord] = []
    for topic in scene.cluster.topics:
        for record in scene.cluster.records(topic, committed=True):
            word = b"" if record.value is None else record.value.split(b" ", 1)[0]
            if word.isdigit():
                log.append(LogRecord(record.topic, record.partition, record.offset, int(word)))
    groups = {place[0] for run in runs.values() for place in run.offsets}
    offsets = {
        (group, *place): found.offset
        for group in sorted(groups)
        for place, found in scene.cluster.committed_offsets(group).items()
    }
    for finding in check_transactions(list(runs.values()), log, offsets):
        scene.books.wrong(str(finding.kind), f"{finding}")


def _is_left_out(account: Account) -> bool:
    """Return whether it is rightly not in its transaction: recalled, not taken, or a call that was given up did not tell."""
    outcome = account.record_outcome() or account.final
    return account.gave_up or isinstance(outcome, RecordRecalledError | UsageError) or _is_not_taken(account)


def _is_not_taken(account: Account) -> bool:
    """Return whether a hook failed within the call of a `send_many`, as within a `send` (docs/transactions.md)."""
    final = account.final
    if not isinstance(final, SerializationError | PartitionerError):
        return False
    return "late" not in str(final.__cause__)  # a serializer that was awaited fails a record that was taken


def _sent(account: Account) -> Sent:
    sent = Sent(account.number, account.topic, account.partition, account.session, sent_at=account.sent_at)
    outcome: object = account.record_outcome() or account.final
    if isinstance(outcome, RecordMetadata) or outcome == "delivered":
        sent.settled, sent.outcome = 1, Outcome.DELIVERED
    elif isinstance(outcome, AiokprodError):
        sent.settled, sent.outcome, sent.error = 1, Outcome.NOT_PERSISTED, f"{outcome!r:.200}"
    return sent
