"""`TokenSource`: the tokens of a client for SASL OAUTHBEARER: one call of the provider at a time, whatever waits for it.

One per start of a client. The provider is the user's: it may be slow, raise, return nonsense, or never return, and nothing
of it may stop the loop, or show a secret (`# faults: S14, S18`).

    take  ->  a kept token that has not expired, at once
          ->  else the call that is under way, or a new one      every dial that waits gets its outcome
    kept for `REFRESH_SHARE` of its time  ->  a new call, in the background; until its outcome the kept token is used

The share is below that of a session after which a connection is replaced (`connection.lease`), so a connection that is
replaced because its token expires finds a new token there (KIP-368).

Invariants: the provider is called once at a time; a plain function is called in a thread of its own; a dial that is
cancelled ends no call; no exception of the provider is kept, as its text and its frames may show a secret.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeAlias

from aiokprod.config import OAuthToken
from aiokprod.config.oauth_token import function_of, token_of
from aiokprod.errors import AiokprodError, AuthenticationError
from aiokprod.logs import StateLog, printable
from aiokprod.program import has_ended

OPTION: Final = "sasl_oauth_token_provider"

REFRESH_SHARE: Final = 0.8
"""The share of a token's time after which a new one is asked for (Java's `sasl.login.refresh.window.factor`). It is below
`lease.RENEWAL_EARLIEST`."""

RETRY_S: Final = 10.0
"""Seconds until a provider that failed is called again in the background, while its last token can be used."""

SLOW_S: Final = 5.0
"""Seconds after which the log says that a provider hangs."""

REST_S: Final = 1.0
"""The least seconds between a call that failed, or whose token was refused, and the next one: identity providers limit
calls, and a dial of each of a hundred brokers may want one (`# faults: S8`)."""

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], object]


class Failure(NamedTuple):
    """The outcome of a call that brought no token: why, without anything that the provider has not meant to be shown."""

    why: str


CLOSED: Final = Failure("was given up, as the client is closed")


class DaemonThread(Executor):
    """A thread for each call, which neither the end of the loop nor that of the process waits for.

    The threads of a pool are joined at exit: a provider that never returns would keep the process alive.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin the call; `fn` must not raise."""
        future: Future[Any] = Future()

        def work() -> None:
            outcome = fn(*args, **kwargs)
            if future.set_running_or_notify_cancel():
                future.set_result(outcome)

        if has_ended():
            work()
        else:
            threading.Thread(target=work, name="aiokprod-token", daemon=True).start()
        return future


class TokenSource:
    """The tokens of one client.

    Args:
        provider: the value of the option `sasl_oauth_token_provider`.
        spawn: starts a task, whose owner cancels it when the client closes; without it no call is made in the background.
        client_id: for the log.
        now_ms: the wall clock, in milliseconds since 1970.
    """

    def __init__(
        self,
        provider: Any,
        spawn: Spawn | None = None,
        *,
        client_id: str | None = None,
        now_ms: Callable[[], float] = lambda: time() * 1000,
    ) -> None:
        self._provider = provider
        self._spawn = spawn
        self._now_ms = now_ms
        self._client_id = client_id
        self._log = StateLog(OPTION, client_id=client_id, name=__name__)
        self._threads = DaemonThread()
        self._kept: OAuthToken | None = None  # the newest token whose expiry is known; it may have expired
        self._call: asyncio.Future[OAuthToken | Failure] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # only without an owner: a loop keeps weak references to tasks
        self._timer: asyncio.TimerHandle | None = None
        self._rests_until = 0.0  # on the loop's clock
        self._slow_since: float | None = None  # loop time when the call began of which the log says that it hangs

    def owned(self, spawn: Spawn) -> TokenSource:
        """Return a source of the same provider's tokens for a client that ends its tasks; call `close` on it."""
        return TokenSource(self._provider, spawn, client_id=self._client_id, now_ms=self._now_ms)

    async def take(self) -> OAuthToken:
        """Return a token that has not expired.

        Cancellation: the call of the provider goes on, and its token is kept for the next caller.

        Raises:
            AuthenticationError: the provider raised, or returned no token that can be used.
        """
        if self._kept is not None and self._left_s(self._kept) > 0:
            return self._kept
        outcome = await asyncio.shield(self._called())
        if isinstance(outcome, Failure):
            raise AuthenticationError(f"{OPTION} {outcome.why}")
        return outcome

    def refused(self, token: OAuthToken) -> None:
        """Note that a broker refused a token: it is not used again."""
        if self._kept is token:
            self._kept = None
            self._stop_timer()
        self._rest()

    def close(self) -> None:
        """Stop calling the provider, and fail what waits for it. The owner of the tasks ends a call that is under way."""
        self._spawn = None
        self._stop_timer()
        if self._call is not None and not self._call.done():
            self._call.set_result(CLOSED)  # its task may be cancelled before its first step, and would never do it

    # ------------------------------------------------------------------ calling the provider

    def _called(self) -> asyncio.Future[OAuthToken | Failure]:
        """Return the outcome of the call that is under way, or of a new one."""
        call = self._call
        if call is None:
            call = asyncio.get_running_loop().create_future()
            work = self._run(call)
            if self._spawn is not None:
                self._spawn(work, "oauth-token")
            else:
                task = asyncio.get_running_loop().create_task(work, name="oauth-token")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if not call.done():  # an eager task may be at its end
                self._call = call  # behind the calls: the next caller would wait for a task that was not started
        return call

    async def _run(self, call: asyncio.Future[OAuthToken | Failure]) -> None:
        outcome: OAuthToken | Failure = CLOSED
        slow: asyncio.TimerHandle | None = None
        try:
            loop = asyncio.get_running_loop()
            if (rest_s := self._rests_until - loop.time()) > 0:
                await asyncio.sleep(rest_s)
            slow = loop.call_later(SLOW_S, self._warn_of_slow_call)
            outcome = self._judged(await self._answer())
        finally:
            if slow is not None:
                slow.cancel()
            self._note_return()
            self._call = None
            if not call.done():
                call.set_result(outcome)
        self._keep(outcome)

    def _warn_of_slow_call(self) -> None:
        self._slow_since = asyncio.get_running_loop().time() - SLOW_S
        left_s = 0.0 if self._kept is None else self._left_s(self._kept)
        then = f"the last token is used for {left_s:.0f} s more" if left_s > 0 else "no connection opens until it does"
        self._log.warned_now(f"has not returned for {SLOW_S:g} s: {then}")

    def _note_return(self) -> None:
        since, self._slow_since = self._slow_since, None
        if since is not None and self._spawn is not None:  # else it was cancelled, as its client is closed
            self._log.announced(f"has returned, after {asyncio.get_running_loop().time() - since:.1f} s")

    async def _answer(self) -> OAuthToken | Failure:
        """Call the provider: an async function on the loop, any other in a thread."""
        function = function_of(self._provider)
        if _is_async(function):
            answer = await _awaited(function)
        else:
            try:
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, _raised_or_returned, function)
            except Exception as error:  # no thread is left (faults: N21)
                return Failure(f"could not be called in a thread: {type(error).__name__}")
            if inspect.isawaitable(answer):  # of a lambda around an async function, for example
                waiting = answer
                answer = await _awaited(lambda: waiting)
        if isinstance(answer, Failure):
            return answer
        token = _raised_or_returned(lambda: token_of(answer, _extensions_of(self._provider)))  # mappings may raise too
        return Failure(f"returned {token}") if isinstance(token, str) else token

    def _judged(self, outcome: OAuthToken | Failure) -> OAuthToken | Failure:
        if isinstance(outcome, OAuthToken) and (left_s := self._left_s(outcome)) <= 0:
            return Failure(f"returned a token that expired {-left_s:.0f} s ago, by this machine's clock")
        return outcome

    # ------------------------------------------------------------------ keeping tokens

    def _keep(self, outcome: OAuthToken | Failure) -> None:
        """Keep a token as long as it can be used, and look for the next one in time."""
        if isinstance(outcome, Failure):
            self._rest()
            if self._kept is not None and (left_s := self._left_s(self._kept)) > 0:
                self._log.warned("failed", f"{outcome.why}; the last token is used for {left_s:.0f} s more")
                self._call_in(min(RETRY_S, left_s / 2))
            return
        if outcome.expires_at_ms is None:
            self._kept = None  # the provider knows how long it is good: each dial asks
            return
        self._kept = outcome
        self._call_in(REFRESH_SHARE * self._left_s(outcome))

    def _left_s(self, token: OAuthToken) -> float:
        # By the wall clock, and not by the loop's, which stands still while a machine sleeps.
        return float("inf") if token.expires_at_ms is None else (token.expires_at_ms - self._now_ms()) / 1000

    def _call_in(self, after_s: float) -> None:
        """Call the provider in the background after some time; not for less than the rest, or near an expiry often."""
        self._stop_timer()
        if self._spawn is not None and after_s >= REST_S:
            self._timer = asyncio.get_running_loop().call_later(after_s, self._called)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self) -> None:
        self._rests_until = asyncio.get_running_loop().time() + REST_S

    def __repr__(self) -> str:
        return f"<TokenSource {'with' if self._kept is not None else 'without'} a token>"


def _extensions_of(provider: Any) -> Any:
    """Return the SASL extensions of a provider as aiokafka and kafka-python have it; None without any."""
    extensions = getattr(provider, "extensions", None)
    return extensions() if callable(extensions) else None


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _raised_or_returned(function: Callable[[], Any]) -> Any:
    """Call a function of the user; what it raises becomes a `Failure`: in a thread nothing else would look at it."""
    try:
        return function()
    except BaseException as error:
        return _failure(error)


async def _awaited(function: Callable[[], Any]) -> Any:
    try:
        return await function()
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # of the client that closes
        return _failure(error)  # of a task of the provider's own
    except Exception as error:
        return _failure(error)


def _failure(error: BaseException) -> Failure:
    """Return what may be told of an exception of the provider.

    Its text may hold a token or a client's secret, so only its type is told, and where it came up. An error of this
    library is raised by code that knows that its text is shown.
    """
    if isinstance(error, AiokprodError):
        return Failure(f"failed: {printable(error.message)}")
    return Failure(f"raised {printable(type(error).__name__, 100)}{_place(error.__traceback__)}")


def _place(raised: TracebackType | None) -> str:
    """Return where in the provider an exception came up; the first frame is ours."""
    inner = None if raised is None else raised.tb_next
    if inner is None:
        return ""
    code = inner.tb_frame.f_code
    return (
        f" ({printable(Path(code.co_filename).name, 100)}, line {inner.tb_lineno}, in {printable(code.co_name, 100)})"
    )
