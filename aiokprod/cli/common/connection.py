"""The options that every command with a connection has: `-b`, `--config`, `-X`, and mostly `--timeout`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import click

from aiokprod.cli.common.parameter import FilePath, Number, Text
from aiokprod.cli.common.running import tell
from aiokprod.config import ProducerConfig
from aiokprod.config.command_line import Setting, config_of_settings, settings_of

CallT = TypeVar("CallT", bound=Callable[..., None])


@dataclass(frozen=True, slots=True)
class Connection:
    """The options of a connection as they were given."""

    bootstrap: str | None
    file: str | None
    pairs: Sequence[str] = field(repr=False)  # one may be a password
    timeout_s: float

    def settings(self) -> list[Setting]:
        """Collect the options from the environment, the file and the command line.

        Raises:
            ConfigError: one of them cannot be read.
        """
        return settings_of(self.bootstrap, self.file, self.pairs)

    def config(self) -> ProducerConfig:
        """Make the config.

        Raises:
            ConfigError: an option is unknown or wrong, or no server is given.
        """
        return config_of_settings(self.settings())

    def config_to_send(self) -> ProducerConfig:
        """Make the config of a command that sends records.

        Raises:
            ConfigError: as `config`.
        """
        return outside_transactions(self.config())


def outside_transactions(config: ProducerConfig, *, is_told: bool = True) -> ProducerConfig:
    """Leave the transactional id out: used by a command, it would fence the program that the options are of."""
    if config.transactional_id is None:
        return config
    if is_told:
        tell("transactional_id is not used: records are sent outside of transactions")
    return config.replace(transactional_id=None)


def connection_options(command: CallT) -> CallT:
    """Add the options of a connection; the command gets them as one argument, `connection`."""
    return _with(command, (_TIMEOUT, *_SETTINGS))


def settings_options(command: CallT) -> CallT:
    """Add the same to a command that waits for no single request: without `--timeout`."""
    return _with(command, _SETTINGS)


TIMEOUT_S: Final = 30.0
_TIMEOUT: Final = click.option(
    "--timeout",
    type=Number(0.001, 86_400),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Give up a request after this time.",
)
_SETTINGS: Final = (
    click.option(
        "-X", "pairs", type=Text(), multiple=True, metavar="NAME=VALUE", help="Set an option, in any client's spelling."
    ),
    click.option("--config", "config_file", type=FilePath(), metavar="FILE", help="Read options: lines of name=value."),
    click.option("-b", "--bootstrap", type=Text(), metavar="HOST:PORT,...", help="Servers to connect to."),
)


def _with(command: CallT, options: Sequence[Callable[[Any], Any]]) -> CallT:
    @functools.wraps(command)
    def with_connection(
        bootstrap: str | None,
        config_file: str | None,
        pairs: Sequence[str],
        timeout: float = TIMEOUT_S,
        **others: Any,
    ) -> None:
        command(connection=Connection(bootstrap, config_file, pairs, timeout), **others)

    made: Any = with_connection
    for option in options:
        made = option(made)
    return made  # type: ignore[no-any-return]
