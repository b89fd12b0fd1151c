"""`running`: one producer from the startup of one application to its shutdown. The only code all frameworks share.

Whoever starts a producer closes it, so a producer has one owner at a time: one that is up already is refused, because this
application's shutdown would close it for the other owner. One after the other is right: a closed producer starts again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokprod.closing import tell_unclean
from aiokprod.config import ProducerConfig
from aiokprod.config.call_timeouts import check_timeout
from aiokprod.config.option_checks import shown
from aiokprod.errors import ConfigError, UsageError
from aiokprod.logs import StateLog
from aiokprod.model import ProducerState
from aiokprod.producer import Producer

CLOSE_TIMEOUT_S = 20.0  # below the 30 s after which Kubernetes kills
OWNED = (ProducerState.STARTING, ProducerState.READY, ProducerState.DEGRADED)


def check_arguments(producer: object, start_timeout: object, close_timeout: object) -> None:
    """What is wrong with the arguments is known where the application is written, not when it starts.

    Raises:
        ConfigError: `producer` is neither a producer nor a config; a timeout is no number of seconds, or below 0.
    """
    if isinstance(producer, type) or not (isinstance(producer, ProducerConfig) or hasattr(producer, "start")):
        raise ConfigError(
            f"producer is {shown(producer)} ({type(producer).__name__}): it must be a Producer that is not started yet, or a"
            " ProducerConfig"
        )
    check_timeout("start_timeout", start_timeout)
    check_timeout("close_timeout", close_timeout)


@asynccontextmanager
async def running(
    producer: Producer | ProducerConfig, *, wait: bool, start_timeout: float | None, close_timeout: float | None
) -> AsyncIterator[Producer]:
    """The producer, started; closed at the end whatever happens, with a warning of what could not be delivered.

    Of a config, a new producer each time.

    Args:
        producer: not started, or closed again; or what to build one from.
        wait: connect first, or come up without a cluster and connect in the background.
        start_timeout: seconds, with `wait`.
        close_timeout: seconds to deliver what was taken; None: until all of it has its outcome.

    Raises:
        ConfigError: `producer` is none, or a timeout is no number of seconds, or below 0; nothing was started.
        UsageError: somebody else has started it and not closed it yet.
        BootstrapError, AuthenticationError, TlsError: with `wait`, as `Producer.start`.

    Cancellation: the producer is closed all the same.
    """
    check_arguments(producer, start_timeout, close_timeout)
    if isinstance(producer, ProducerConfig):
        producer = Producer(producer)
    if producer.health().state in OWNED:
        raise UsageError(
            f"{producer!r} was started by somebody else, who will also close it: give each application a producer of its"
            " own (or a ProducerConfig, to build one from)"
        )
    await producer.start(start_timeout, wait=wait)
    try:
        yield producer
    finally:
        tell_unclean(await producer.close(close_timeout), StateLog("producer", client_id=producer.config.client_id))
