"""Options of a command's connection: `-b`, `-X name=value` as in kcat, a file of options, the environment.

The precedence is that order: an option of the command line overrides the file, which overrides the environment. A Kubernetes
pod gets its options from the environment, and what a person types there must win.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from aiokprod.config.environment import read_variables
from aiokprod.config.foreign_names import CODEC_LEVELS, JAAS, RENAMED, dotted, ignored, refused
from aiokprod.config.jaas import credentials
from aiokprod.config.mapping import Reading, is_settled, values_of
from aiokprod.config.option_checks import Check
from aiokprod.config.option_rules import TOKENS, conflicts
from aiokprod.config.option_texts import named_as_written
from aiokprod.config.producer_config import ProducerConfig, texts_of
from aiokprod.config.properties import read, read_all
from aiokprod.config.servers import parse_servers
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
        _put(options, *_name_and_value(pair))
    if servers is not None:
        for name in ("metadata.broker.list", "bootstrap.servers"):
            _put(options, name, servers)
        del options["metadata.broker.list"]
    return options


def _name_and_value(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not name.strip() or not equals:
        raise ConfigError("-X needs name=value, such as -X security.protocol=SSL")
    return name.strip(), value


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
        _check_is_for_commands(name, value)
    is_patient = any(dotted(name) == "start.timeout.ms" for name in options)
    more: dict[str, Any] = {} if is_patient else {"start_timeout_ms": START_TIMEOUT_MS}
    try:
        return ProducerConfig.from_mapping(options, **more)
    except ConfigError as error:
        raise _of_text(error) from None


_OF_PYTHON: Final = {
    re.compile(r" \((?:bool|float|int|str)\): it must"): ": it must",
    re.compile(r", as a str or a Path\b|, or a plain function \(.*\) -> int"): "",
    re.compile(r"\ba str or a Secret, not empty"): "a text that is not empty",
    re.compile(r"\ba str\b"): "a text",
    re.compile(r"cannot be encoded in UTF-8: it must be a text without lone surrogates"): "is not UTF-8",
}


def without_types(text: str) -> str:
    """Return a text about an option without types of Python: at the command line all that is typed is text."""
    for of_python, plain in _OF_PYTHON.items():
        text = of_python.sub(plain, text)
    return text


def _of_text(error: ConfigError) -> ConfigError:
    message = without_types(error.message)
    return error if message == error.message else ConfigError(message)


_AS_TEXT: Final = re.compile(r"(?:set|in) ssl_")
"""an advice that names another option, whose value is a text; any other one is for programs"""


def _check_is_for_commands(name: str, value: Any) -> None:
    """Check that an option is not one of a program: the advice for programs would be wrong here.

    Raises:
        ConfigError: it is one that only programs can replace.
    """
    ours = our_name(name)
    if ours == "sasl_oauth_token_provider" or (ours == "sasl_mechanism" and str(value).strip() == TOKENS):
        raise ConfigError(f"{name}: {NO_TOKENS}")
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
    error: ConfigError | None = None
    """why it could not be read; it has no value then"""
    line: int = 0
    """of the file"""

    @property
    def name(self) -> str:
        """The name that was written, or that of the variable."""
        return self.written if self.layer else self.source


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

    What cannot be read is among them with its error: `problems_of` tells all of these that are not overridden.
    """
    variables = read_variables(os.environ if environ is None else environ, _kinds())
    settings = [Setting(each.option, each.option, each.value, each.name, 0, each.error) for each in variables]
    if file is not None:
        settings += _of_file(file)
    given: dict[str, str] = {}
    for pair in pairs:
        try:
            _put(given, *_name_and_value(pair))
        except ConfigError as error:
            settings.append(Setting("", "", None, "-X", 2, error))
    settings += _layer(given, "-X", 2)
    if servers is not None:
        settings += _layer({"bootstrap.servers": servers}, "-b", 3)
    return settings


def _of_file(file: str | os.PathLike[str]) -> list[Setting]:
    source = f"--config {os.fspath(file)}"
    try:
        options, wrong, lines = read_all(file)
    except ConfigError as error:
        return [Setting("", "", None, source, 1, error)]
    found = [replace(each, line=lines[each.written]) for each in _layer(options, source, 1)]
    return [*found, *(Setting(our_name(name), name, None, source, 1, why) for name, why in wrong)]


def _layer(options: Mapping[str, str], source: str, layer: int) -> list[Setting]:
    """Return the options of one source; the two that are in a JAAS text count as two."""
    settings: list[Setting] = []
    for name, text in options.items():
        if dotted(name) != JAAS or not text.strip():
            settings.append(Setting(our_name(name), name, text, source, layer))
            continue
        try:
            parts = {part.replace(".", "_"): value for part, value in credentials(text).items()}
            settings += [Setting(option, name, value, source, layer) for option, value in parts.items()]
        except ConfigError as error:  # it is no loss if both are given elsewhere
            both = ("sasl_username", "sasl_password")
            settings += [Setting(option, name, None, source, layer, error) for option in both]
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
    """Return all that is wrong with the settings, from all sources: it is mended in one round.

    First what is wrong by itself, then conflicts. A conflict with an option that is wrong by itself is left out: the value
    that it has here is not the one that was meant.
    """
    problems: list[Problem] = []
    reading = Reading(_kinds())
    written: dict[str, str] = {}
    chosen = effective(settings)
    for each in chosen:
        try:
            _check_alone(each)
            if ignored(each.written) is None or each.written in _kinds():
                reading.take(*_as_read(each))
        except ConfigError as error:
            told = _with_line(_of_text(error), each)
            if all(told is not other.error for other in problems):  # a JAAS text counts as two
                problems.append(Problem(each, told))
            continue
        written[each.option] = each.name
    try:
        reading.take_level({})
    except ConfigError as error:
        problems.append(Problem(None, error))
    reading.leave_out_mechanism({})
    wrong = {each.setting.option for each in problems if each.setting}
    if not any(each.option == "bootstrap_servers" for each in chosen) and "" not in wrong:
        problems.append(Problem(None, ConfigError(_NO_SERVER)))
    values = {item.name: reading.values.get(item.name, item.default) for item in fields(ProducerConfig)}
    given = {option: name for option, name in written.items() if option}
    for conflict in conflicts(values, reading.values):
        if not any(re.search(rf"\b{option}\b", conflict.message) for option in wrong if option):
            problems.append(Problem(None, named_as_written(conflict, given)))
    return problems


def _with_line(error: ConfigError, setting: Setting) -> ConfigError:
    """Return the error of an option that no client has with its line: a text that is no option has its first word as name."""
    if not setting.line or not error.message.startswith("unknown option"):
        return error
    return ConfigError(f"{setting.source.removeprefix('--config ')}, line {setting.line}: {error.message}")


def _check_alone(setting: Setting) -> None:
    """Check one setting by itself, under the name that was written.

    Raises:
        ConfigError: it could not be read, is unknown, or has a value that is not allowed.
    """
    if setting.error is not None:
        raise setting.error
    written = setting.written
    if dotted(written) == JAAS or (ignored(written) is not None and written not in _kinds()):
        return
    _check_is_for_commands(written, setting.value)
    for option, value in values_of(_kinds(), written, setting.value).items():
        if value is not None:
            _check_of(option).refuse(setting.name, value)
            if option == "bootstrap_servers":
                parse_servers(value)


def _check_of(option: str) -> Check:
    check: Check = ProducerConfig.__dataclass_fields__[option].metadata["check"]
    return check


def _as_read(setting: Setting) -> tuple[str, Any]:
    """Return the name and the value of an option as a mapping has them; a part of a JAAS text by our name."""
    is_of_jaas = dotted(setting.written) == JAAS and setting.option
    return (setting.option if is_of_jaas else setting.written), setting.value


def config_of_settings(settings: Sequence[Setting]) -> ProducerConfig:
    """Make the config of a command from its settings.

    Raises:
        ConfigError: an option is unknown or wrong, or no server is given. If more is wrong, it says so.
    """
    problems = problems_of(settings)
    if not problems:
        return _config_of(effective(settings))
    error, others = problems[0].error, len(problems) - 1
    if not others:
        raise error
    raise ConfigError(
        f"{error.message}. There {'is one more problem' if others == 1 else f'are {others} more problems'}:"
        " `aiokprod config explain` with the same options shows all"
    )


def divided(settings: Sequence[Setting], problems: Sequence[Problem]) -> tuple[list[Setting], list[Setting]]:
    """Divide the effective settings into those that are right by themselves, and those that are wrong.

    Args:
        settings: what was given, also what is overridden.
        problems: what `problems_of` found.
    """
    told = {id(each.setting) for each in problems}
    right: list[Setting] = []
    wrong: list[Setting] = []
    for each in effective(settings):
        (wrong if each.error is not None or id(each) in told else right).append(each)
    return right, wrong


def fitting(settings: Sequence[Setting]) -> list[Setting]:
    """Leave out the settings that conflicts name.

    Args:
        settings: with a server, each right by itself.
    """
    kept = list(settings)
    while any(each.layer >= 0 for each in kept) and (problems := problems_of(kept)):
        said = " ".join(each.error.message for each in problems)
        fit = [each for each in kept if each.layer < 0 or not re.search(rf"\b{each.option}\b", said)]
        # A conflict names an option that was given; if one does not, nothing but the server is known to fit.
        kept = fit if len(fit) < len(kept) else [each for each in kept if each.layer < 0]
    return kept


def shown_alone(settings: Sequence[Setting]) -> dict[str, str]:
    """Return the values of settings as a config shows them; they need not fit together, and secrets stay hidden.

    Args:
        settings: each right by itself.
    """
    reading = Reading(_kinds())
    for each in effective(settings):
        if each.option:
            reading.take(*_as_read(each))
    reading.take_level({})
    return texts_of(reading.values)


_NO_SERVER: Final = (
    "no cluster is named: add -b HOST:PORT, or set AIOKPROD_BOOTSTRAP_SERVERS, or bootstrap.servers in a file for"
    " --config"
)


def _config_of(chosen: Sequence[Setting]) -> ProducerConfig:
    return config_of(dict(_as_read(each) for each in chosen))
