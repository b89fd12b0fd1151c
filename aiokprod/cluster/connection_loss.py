"""How connections end, in words: the errors that say who hung up, when, and what to look at. Stateless."""

from __future__ import annotations

from aiokprod.errors import ConnectionLostError, RequestTimeoutError
from aiokprod.wire.exchange import Entry


def timed_out(host: str, port: int, head: Entry, waited_s: float) -> RequestTimeoutError:
    """The oldest request waited too long."""
    return RequestTimeoutError(
        f"{host}:{port}: no answer to api {head.api_key} version {head.version} within {waited_s:.1f} s",
        host=host,
        port=port,
    )


def ended_by_broker(
    host: str, port: int, exc: Exception | None, *, in_an_answer: bool, may_want_sasl: bool
) -> ConnectionLostError:
    """The stream ended (`exc` None) or broke."""
    text = "the broker closed the connection" if exc is None else f"the connection broke: {exc}"
    if in_an_answer:
        text += " in the middle of an answer"
    elif may_want_sasl:
        # A SASL listener takes ApiVersions from anybody and hangs up on the next request.
        text += " at the first request (does this listener want SASL? see security_protocol)"
    error = ConnectionLostError(f"{host}:{port}: {text}", host=host, port=port)
    if exc is not None:
        error.__cause__ = exc.with_traceback(None)  # its frames hold what was being written (faults: S18)
    return error


def for_one_waiter(host: str, port: int, cause: Exception | None) -> ConnectionLostError:
    """A fresh error for each who waited: a shared one would grow its traceback with every raise."""
    if isinstance(cause, ConnectionLostError):
        return cause.clone()
    why = "the connection is not open" if cause is None else f"the connection was closed: {cause}"
    error = ConnectionLostError(f"{host}:{port}: {why}", host=host, port=port)
    error.__cause__ = cause
    return error
