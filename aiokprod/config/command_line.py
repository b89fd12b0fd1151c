"""Options of a command's connection: `-b`, `-X name=value` as in kcat, a file of options, the environment.

The precedence is that order: an option of the command line overrides the file, which overrides the environment. A Kubernetes
pod gets its options from the environment, and what a person types there must win.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from aiokprod.config.environment import read_environment
from aiokprod.config.foreign_names import CODEC_LEVELS, JAAS, RENAMED, dotted, ignored, refused
from aiokprod.config.jaas import credentials
from aiokprod.config.mapping import is_settled, values_of
from aiokprod.config.option_rules import TOKENS
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


NO_TOKENS: Final = (
    "a command cannot use OAUTHBEARER: its tokens come from a function of a program (sasl_oauth_token_provider). Give the"
    " command a listener with PLAIN, SCRAM or client certificates, or write a short program with aiokprod.Producer"
)


def config_of(options: Mapping[str, Any]) -> ProducerConfig:
    """Make the config of a command; by default it waits a few seconds for a cluster, not half a minute.

    Raises:
        ConfigError: an option is unknown or wrong, no server is given, or the mechanism needs a function of a program.
    """
    for name, value in options.items():
        ours = our_name(name)
        if ours == "sasl_oauth_token_provider" or (ours == "sasl_mechanism" and str(value).strip() == TOKENS):
            raise ConfigError(f"{name}: {NO_TOKENS}")
        _check_is_for_commands(name, value)
    is_patient = any(dotted(name) == "start.timeout.ms" for name in options)
    more: dict[str, Any] = {} if is_patient else {"start_timeout_ms": START_TIMEOUT_MS}
    return ProducerConfig.from_mapping(options, **more)


_AS_TEXT: Final = re.compile(r"set (?:ssl_|buffer_memory|batch_size)|in ssl_")
"""an advice that names another option, whose value is a text; any other one is for programs"""


def _check_is_for_commands(name: str, value: Any) -> None:
    """Check that an option is not one of a program: the advice for programs would be wrong here.

    Raises:
        ConfigError: it is one that only programs can replace.
    """
    absent = None if name in _kinds() else refused(name)
    if absent is not None and not is_settled(absent, value) and not _AS_TEXT.search(absent.advice):
        raise ConfigError(f"option {name!r} is for programs, and a command does not use it: delete its line, or the -X")


# ---------------------------------------------------------------------- layers


@dataclass(frozen=True, slots=True)
class Setting:
    """One option as it was given somewhere."""

    option: str
    """our name of it; empty for an option that other clients have and we do not"""
    written: str
    """the name that was written"""
    value: Any = field(repr=False)
    """the text, or the value that the environment gave; it may be a secret"""
    source: str
    """where: `-X`, `-b`, `--config FILE`, the name of a variable"""
    layer: int
    """a higher one overrides a lower one"""


def settings_of(
    servers: str | None,
    file: str | os.PathLike[str] | None = None,
    pairs: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> list[Setting]:
    """Collect what was given, lowest precedence first: environment, file, `-X`, `-b`.

    Args:
        servers: of `-b`.
        file: a file of options.
        pairs: of `-X`, each `name=value`.
        environ: names and texts of variables; None is the environment of the process.

    Raises:
        ConfigError: a variable, the file or a pair cannot be read. No value is shown: it may be a secret.
    """
    kinds = _kinds()
    found, names = read_environment(os.environ if environ is None else environ, kinds)
    settings = [Setting(option, option, value, names[option], 0) for option, value in found.items()]
    if file is not None:
        settings += _layer(read(file), f"--config {os.fspath(file)}", 1)
    settings += _layer(given_options(None, None, pairs), "-X", 2)
    if servers is not None:
        settings += _layer({"bootstrap.servers": servers}, "-b", 3)
    return settings


def _layer(options: Mapping[str, str], source: str, layer: int) -> list[Setting]:
    """Return the options of one source; the two that are in a JAAS text count as two."""
    settings: list[Setting] = []
    for name, text in options.items():
        if dotted(name) == JAAS and text.strip():
            parts = {part.replace(".", "_"): value for part, value in credentials(text).items()}
            settings += [Setting(option, name, value, source, layer) for option, value in parts.items()]
        else:
            settings.append(Setting(our_name(name), name, text, source, layer))
    return settings


def _kinds() -> dict[str, str]:
    """Return the annotation of each option."""
    return {item.name: str(item.type) for item in fields(ProducerConfig)}


def our_name(written: str) -> str:
    """Return our name of an option in any client's spelling; empty if we have none."""
    if dotted(written) in CODEC_LEVELS:
        return "compression_level"
    name = RENAMED.get(dotted(written), written.replace(".", "_"))
    return name if name in _kinds() else ""


def effective(settings: Sequence[Setting]) -> list[Setting]:
    """Leave out what a higher layer overrides, and in one layer of pairs what a later pair does.

    Within a file one option in two spellings stays twice: it is an error if the values differ, which the config tells.
    """
    kept: list[Setting] = []
    for number, each in enumerate(settings):
        later = settings[number + 1 :]
        if each.option and any(
            other.option == each.option and (other.layer > each.layer or other.layer == each.layer == 2)
            for other in later
        ):
            continue
        kept.append(each)
    return kept


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the settings."""

    setting: Setting | None
    """None: it is no single option, but how they fit together"""
    error: ConfigError


def problems_of(settings: Sequence[Setting]) -> list[Problem]:
    """Return all that is wrong with the settings: a file of another client is mended in one round."""
    problems: list[Problem] = []
    good: list[Setting] = []
    checks = {item.name: item.metadata["check"] for item in fields(ProducerConfig)}
    for each in effective(settings):
        if dotted(each.written) != JAAS and (ignored(each.written) is None or each.written in _kinds()):
            try:
                _check_is_for_commands(each.written, each.value)
                for option, value in values_of(_kinds(), each.written, each.value).items():
                    if value is not None:
                        checks[option].refuse(option, value)
            except ConfigError as error:
                problems.append(Problem(each, error))
                continue
        good.append(each)
    if any(each.option == "bootstrap_servers" for each in good) or not problems:
        try:
            _config_of(good)
        except ConfigError as error:
            problems.append(Problem(None, error))
    return problems


def config_of_settings(settings: Sequence[Setting]) -> ProducerConfig:
    """Make the config of a command from its settings.

    Raises:
        ConfigError: an option is unknown or wrong, or no server is given. If more is wrong, it says so.
    """
    chosen = effective(settings)
    try:
        return _config_of(chosen)
    except ConfigError as error:
        others = len(problems_of(settings)) - 1
        if others < 1:
            raise
        raise ConfigError(
            f"{error.message}. There {'is one more problem' if others == 1 else f'are {others} more problems'}:"
            " `aiokprod config explain` with the same options shows all"
        ) from None


def _config_of(chosen: Sequence[Setting]) -> ProducerConfig:
    if not any(each.option == "bootstrap_servers" for each in chosen):
        raise ConfigError(
            "no cluster is named: add -b HOST:PORT, or set AIOKPROD_BOOTSTRAP_SERVERS, or bootstrap.servers in a file for"
            " --config"
        )
    options: dict[str, Any] = {}
    for each in chosen:
        is_of_jaas = dotted(each.written) == JAAS and each.option
        options[each.option if is_of_jaas else each.written] = each.value
    return config_of(options)
