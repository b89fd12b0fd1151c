"""The check of a handle, whatever its record is part of: settled, told to each listener, and never otherwise."""

from __future__ import annotations

from .books import Account, shown
from .scene import Scene


def judge_handle(scene: Scene, account: Account) -> bool:
    """Judge what its listeners were told; return whether the record itself has an outcome to be judged."""
    wrong = scene.books.wrong
    assert account.delivery is not None
    if account.callbacks and account.callback_calls > account.callbacks:
        wrong("a callback is called twice", f"{account}: {account.callback_calls} of {account.callbacks}")
    if not account.delivery.done():
        wrong("never settled", f"{account}")
        return False
    if account.settled_at() is None:
        wrong("never settled", f"{account}: the record itself")
        return False
    if account.callback_calls < account.callbacks:
        wrong("a callback is never called", f"{account}: {account.callback_calls} of {account.callbacks}")
    now = account.said()
    if account.first_seen is not None and now is not None and now != account.first_seen:
        wrong("the outcome changed", f"{account}: first {account.first_seen}, now {now}")
    for _, outcome in account.told:
        if outcome != "cancelled" and now is not None and shown(outcome) != now:
            wrong("told otherwise", f"{account}: a waiter was told {shown(outcome)}, the handle says {now}")
    return True
