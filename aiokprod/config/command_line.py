"""Options of a command's connection: `--bootstrap`, a file of options, and `-X name=value`, as in kcat."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from aiokprod.config.foreign_names import dotted
from aiokprod.config.producer_config import ProducerConfig
from aiokprod.config.properties import read
from aiokprod.errors import ConfigError

START_TIMEOUT_MS: Final = 5_000  # a person waits for the command


def given_options(
    servers: str | None, file: str | os.PathLike[str] | None = None, pairs: Sequence[str] = ()
) -> dict[str, str]:
    """Collect the options under the names that were written; a later argument overrides an earlier one.

    Raises:
        ConfigError: the file cannot be read, or one of the pairs is not name=value. No value is shown: it may be a secret.
    """
    options = {} if file is None else read(file)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name.strip() or not equals:
            raise ConfigError("-X needs name=value, such as -X security.protocol=SSL")
        _put(options, name.strip(), value)
    if servers is not None:
        for name in ("metadata.broker.list", "bootstrap.servers"):
            _put(options, name, servers)
        del options["metadata.broker.list"]
    return options


def _put(options: dict[str, str], name: str, value: str) -> None:
    """Set an option, replacing the same option in another spelling."""
    for other in [other for other in options if dotted(other) == dotted(name)]:
        del options[other]
    options[name] = value


def config_of(options: dict[str, str]) -> ProducerConfig:
    """Make the config of a command; by default it waits a few seconds for a cluster, not half a minute."""
    is_patient = any(dotted(name) == "start.timeout.ms" for name in options)
    more: dict[str, Any] = {} if is_patient else {"start_timeout_ms": START_TIMEOUT_MS}
    return ProducerConfig.from_mapping(options, **more)
