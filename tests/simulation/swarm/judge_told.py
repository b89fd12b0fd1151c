"""The check that each failure is told to its caller, or to on_delivery_error once; never neither, never both.

A handle says which it was (`reported`): the reports are to be as many as the handles say, and what the handles say is to fit
what is known of their listeners.
"""

from __future__ import annotations

from collections import Counter

from aiokprod.errors import AiokprodError, RecordRecalledError, SendTimeoutError

from .books import Account, persistence_of
from .scene import Life, Scene

Key = tuple[str, str | None, str]


def judge_told(scene: Scene) -> None:
    """Judge what each producer reported."""
    for life in scene.lives:
        if scene.world.hooks.get("on_delivery_error") is not None:
            _judge_reports(scene, life)
        _judge_outcomes(scene, life)
        _judge_hooks(scene, life)


def _judge_reports(scene: Scene, life: Life) -> None:
    """Compare reports by kind, as on_delivery_error does not say which record it is about."""
    reports = Counter(_key(error) for _, error in scene.books.reports.get(life.index, ()))
    must, may = Counter[Key](), Counter[Key]()
    unknown = 0
    failed_low = failed_high = 0
    example: dict[Key, Account] = {}
    for account in scene.books.accounts:
        if account.life[0] != life.index:
            continue
        low, high, is_unknown = _failures(account)
        failed_low, failed_high, unknown = failed_low + low, failed_high + high, unknown + is_unknown
        _judge_reported(scene, account)
        for key, is_sure in _expected(account):
            (must if is_sure else may)[key] += 1
            example.setdefault(key, account)
    columns = (call for call in scene.books.calls if call.kind == "send_columns" and call.life[0] == life.index)
    failed_high += sum(call.facts.get("failed", 0) for call in columns)
    if not unknown:
        for key in {*reports, *must, *may}:
            least, most = must[key], must[key] + may[key]
            if reports[key] < least:
                text = (
                    f"{key}: {reports[key]} reports of {least} failures that nothing waited for, such as {example[key]}"
                )
                scene.books.wrong("fails in silence", text)
            elif reports[key] > most:
                text = f"{key}: {reports[key]} reports, {most} failures that nothing waited for"
                scene.books.wrong("reported too often", f"{text}, such as {example.get(key)}")
        return
    # Failures of records that cannot be asked for: by the producer's own count of failures.
    count, least, most = reports.total(), must.total(), must.total() + may.total()
    hidden_low, hidden_high = max(0, life.failed_count - failed_high), max(0, life.failed_count - failed_low)
    if count < least + hidden_low:
        text = f"{count} reports, {least} + {hidden_low} failures that nothing waited for; {life.failed_count} failed in all"
        scene.books.wrong("fails in silence", text)
    elif count > most + hidden_high + unknown:
        scene.books.wrong("reported too often", f"{count} reports, at most {most} + {hidden_high} failures")


def _key(error: AiokprodError) -> Key:
    return type(error).__name__, error.topic, persistence_of(error)


def _failures(account: Account) -> tuple[int, int, int]:
    """Return how many of records_failed this account is, at least and at most."""
    if account.via == "thread":  # its Future does not tell whether it was refused or failed later
        return 0, 1, 0
    if account.refused is not None:
        return 0, 0, 0
    if account.delivery is None:
        if account.released or (account.final is None and not account.is_in_report):
            return 0, 0, 1
        # send_many tells no difference between a record that was refused and one that failed.
        return (0, 1, 0) if isinstance(account.final, AiokprodError) else (0, 0, 0)
    failed = isinstance(account.record_outcome(), AiokprodError)
    return int(failed), int(failed), 0


def _expected(account: Account) -> list[tuple[Key, bool]]:
    """Return what on_delivery_error is to be told of it, and whether that is sure."""
    delivery = account.delivery
    if delivery is None or account.refused is not None:
        return []
    outcome = account.record_outcome()
    error = outcome if isinstance(outcome, AiokprodError) and not isinstance(outcome, RecordRecalledError) else None
    handle = account.handle_error()
    if account.is_handle_alone:
        assert isinstance(handle, SendTimeoutError)
        return [(_key(handle), True)] if handle.reported else []
    if delivery.cancelled():
        if account.timeout_at is not None:
            keys: list[tuple[Key, bool]] = [(("SendTimeoutError", account.topic, "POSSIBLY_PERSISTED"), False)]
            return [*keys, (_key(error), False)] if error is not None else keys
        return [] if error is None else [(_key(error), True)]
    return [(_key(error), True)] if error is not None and handle is not None and handle.reported else []


def _judge_reported(scene: Scene, account: Account) -> None:
    """Check that a failure was reported if nothing asked for it in time, and only then."""
    if account.delivery is None or account.refused is not None:
        return
    error = account.handle_error()
    if error is None or isinstance(error, RecordRecalledError):
        return
    for at, outcome in account.told:
        if isinstance(outcome, AiokprodError) and outcome.reported != error.reported:
            text = f"{account}: reported is {outcome.reported} at {at:.4f} s, and {error.reported} at the end"
            scene.books.wrong("reported lies", text)
    failed_at = account.timeout_at if account.is_handle_alone else account.settled_at()
    listening = account.listening_at(failed_at)
    if error.reported and listening is True and not account.gave_up:
        scene.books.wrong("reported too often", f"{account}: a listener was there")
    elif account.gave_up and account.told:
        pass  # its task gave up about then, which the books do not know to the turn, and the program has the error
    elif not error.reported and listening is False and not account.may_have_asked(failed_at):
        scene.books.wrong("fails in silence", f"{account}: no listener was there, and none came in time")


def _judge_outcomes(scene: Scene, life: Life) -> None:
    """Check that an interceptor hears of each record once."""
    if life.hooks.interceptor is None or "raise_every" in scene.world.hooks["interceptor"]:
        return
    is_broken = any(
        step.kind in ("strike", "deep", "interrupt") for step in scene.world.operations
    )  # what hooks raise costs a call
    heard = Counter(number for number, _ in scene.books.outcomes.get(life.index, ()) if number >= 0)
    for account in scene.books.accounts:
        if account.life[0] != life.index or account.via == "columns" or account.gave_up or account.final is not None:
            continue
        count = heard[account.number]
        if account.refused is not None:
            most, least = 1, 0
        else:
            most, least = 1, 1 if account.delivery is not None and not is_broken else 0
        if not least <= count <= most:
            scene.books.wrong("the interceptor hears wrongly", f"{account}: {count} outcomes")
            return


def _judge_hooks(scene: Scene, life: Life) -> None:
    interceptor = life.hooks.interceptor
    if interceptor is None:
        return
    if interceptor.closed > interceptor.configured:
        text = f"configured {interceptor.configured} times, closed {interceptor.closed} times"
        scene.books.wrong("hooks are closed wrongly", text)
    if interceptor.closed < interceptor.configured:
        text = f"configured {interceptor.configured} times, closed {interceptor.closed} times"
        scene.books.wrong("hooks are not closed", text)
