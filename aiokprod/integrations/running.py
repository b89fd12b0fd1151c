"""`running`: one producer from the startup of one application to its shutdown. The only code that all frameworks share.

The code that starts a producer also closes it, so a producer has one owner at a time. A producer that is already started is
refused, because this application's shutdown would close it for the other owner. One owner after the other is fine: a closed
producer can be started again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aiokprod.closing import tell_unclean
from aiokprod.config import ProducerConfig
from aiokprod.config.call_timeouts import UNSET, Unset, timeout_of_call
from aiokprod.config.option_checks import shown
from aiokprod.errors import ConfigError, UsageError
from aiokprod.logs import StateLog
from aiokprod.model import ProducerState
from aiokprod.producer import Producer

CLOSE_TIMEOUT_S = 20.0  # below the 30 s after which Kubernetes kills a pod
OWNED = (ProducerState.STARTING, ProducerState.READY, ProducerState.DEGRADED)


def check_arguments(producer: object, start_timeout: float | Unset | None, close_timeout: float | Unset | None) -> None:
    """Check the arguments where the application is written, not when it starts.

    Raises:
        ConfigError: `producer` is neither a producer nor a config; a timeout is no number of seconds, or below 0.
    """
    if isinstance(producer, type) or not (isinstance(producer, ProducerConfig) or hasattr(producer, "start")):
        kind = "a class" if isinstance(producer, type) else type(producer).__name__
        raise ConfigError(
            f"producer is {shown(producer)} ({kind}): it must be a Producer that is not started yet, or a"
            " ProducerConfig"
        )
    timeout_of_call("start_timeout", start_timeout, None)
    timeout_of_call("close_timeout", close_timeout, None)


@asynccontextmanager
async def running(
    producer: Producer | ProducerConfig,
    *,
    wait: bool,
    start_timeout: float | Unset | None = UNSET,
    close_timeout: float | Unset | None = UNSET,
) -> AsyncGenerator[Producer]:
    """Run a producer: start it, and close it at the end whatever happens, with a warning about undelivered records.

    From a config, each run builds a new producer.

    Args:
        producer: one that is not started or closed again, or a config.
        wait: True connects first; False starts without a cluster and connects in the background.
        start_timeout: seconds, with `wait`; without it `start_timeout_ms` applies.
        close_timeout: seconds to deliver accepted records; None waits until all of them have their outcome. Without it
            `close_timeout_ms` applies if it was given, else it is 20.

    Raises:
        ConfigError: `producer` has a wrong type, or a timeout is no number of seconds, or below 0; nothing was started.
        UsageError: the producer was started elsewhere and is not closed yet.
        BootstrapError, AuthenticationError, TlsError: with `wait`, as `Producer.start`.

    Cancellation: the producer is closed all the same.
    """
    check_arguments(producer, start_timeout, close_timeout)
    if isinstance(producer, ProducerConfig):
        producer = Producer(producer)
    if producer.health().state in OWNED:
        raise UsageError(
            f"{producer!r} was started elsewhere, and will be closed there too: give each application a producer of its"
            " own (or a ProducerConfig, to build one from)"
        )
    config = producer.config
    close_s = config.close_timeout if config.was_given("close_timeout_ms") else CLOSE_TIMEOUT_S
    await producer.start(timeout_of_call("start_timeout", start_timeout, config.start_timeout), wait=wait)
    try:
        yield producer
    finally:
        report = await producer.close(timeout_of_call("close_timeout", close_timeout, close_s))
        tell_unclean(report, StateLog("producer", client_id=config.client_id))
