"""aiohttp: `producer_ctx` for `app.cleanup_ctx`, and `PRODUCER`, the key under which handlers find the producer.

aiohttp runs the contexts in their order and ends them in the opposite one: append this one first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from aiokprod.config import ProducerConfig
from aiokprod.config.call_timeouts import UNSET, Unset
from aiokprod.errors import ConfigError
from aiokprod.integrations.running import check_arguments, running
from aiokprod.producer import Producer

try:
    from aiohttp import web
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "aiokprod.integrations.aiohttp needs: pip install aiohttp", name=missing.name
    ) from missing

PRODUCER = web.AppKey("producer", Producer)
"""`request.app[PRODUCER]`; in a handler of a sub-application `request.config_dict[PRODUCER]`."""


def producer_ctx(
    producer: Producer | ProducerConfig,
    *,
    key: web.AppKey[Producer] = PRODUCER,
    wait: bool = False,
    start_timeout: float | Unset | None = UNSET,
    close_timeout: float | Unset | None = UNSET,
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Make a cleanup context that runs the producer as long as the application.

    Args:
        producer: one that is not started yet, or a config from which to build one.
        key: under which the application keeps the producer; several producers need several keys.
        wait: True fails the startup if no broker answers. False starts without Kafka, and accepts records at once.
        start_timeout: seconds, with `wait`; without it `start_timeout_ms` applies.
        close_timeout: seconds to deliver accepted records (None: no bound), after the contexts appended later have ended.
            Without it `close_timeout_ms` applies if it was given, else it is 20.

    Returns:
        The context, to append to `app.cleanup_ctx`.

    Raises:
        ConfigError: an argument has a wrong type or value; at startup: the application has a producer under this key.
        UsageError: at startup: the producer was started elsewhere (two applications need two producers).
    """
    check_arguments(producer, start_timeout, close_timeout)

    async def kafka(app: web.Application) -> AsyncIterator[None]:
        if key in app:
            raise ConfigError(f"the application has a producer under {key!r} already: give producer_ctx another key=")
        async with running(producer, wait=wait, start_timeout=start_timeout, close_timeout=close_timeout) as started:
            app[key] = started
            yield

    return kafka
