"""A config from a mapping whose names may be Java's, librdkafka's, aiokafka's or aiokprod's, and whose values may be texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from aiokprod.config.foreign_names import (
    CODEC_LEVELS,
    DEFAULT_PARTITIONERS,
    JAAS,
    OTHERS_MECHANISMS,
    OVERRULED,
    PARTITIONER_NAMES,
    RENAMED,
    Absent,
    dotted,
    ignored,
    is_of_librdkafka,
    of_others,
    refused,
)
from aiokprod.config.jaas import credentials
from aiokprod.config.option_checks import MAX_INT, shown
from aiokprod.config.option_rules import WITHOUT_LEVELS
from aiokprod.config.option_texts import named_as_written, typed
from aiokprod.config.servers import protocols_in
from aiokprod.config.unknown import unknown_option
from aiokprod.errors import ConfigError
from aiokprod.logs import GuardedLogger

ConfigT = TypeVar("ConfigT")
_log = GuardedLogger("aiokprod.config")


def build(
    of: Callable[..., ConfigT], kinds: Mapping[str, str], mapping: Mapping[str, Any], options: Mapping[str, Any]
) -> ConfigT:
    """Make a config from the mapping; the given options take precedence.

    Args:
        of: makes a config of options in our names.
        kinds: the annotation of each option.
        mapping: names and values.
        options: take precedence over the mapping.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"from_mapping needs a mapping of names and values, not {type(mapping).__name__}")
    reading = Reading(kinds)
    wrong: list[ConfigError] = []
    for name, value in mapping.items():
        if not isinstance(name, str):
            raise ConfigError(f"an option's name must be a str, not {shown(name)} ({type(name).__name__})")
        try:
            reading.take(name, value)
        except ConfigError as error:
            wrong.append(error)
    if wrong:
        raise _all_of(wrong)
    reading.take_level(options)
    reading.leave_out_mechanism(options)
    reading.tell_ignored()
    try:
        built = of(**{**reading.values, **options})
    except ConfigError as error:
        written = {ours: name for ours, name in reading.written.items() if ours not in options}
        raise named_as_written(error, written) from None
    if "partitioner" not in reading.values and options.get("partitioner") is None:
        _tell_partitioner([name for name in mapping if is_of_librdkafka(name)])
    return built


def _all_of(wrong: Sequence[ConfigError]) -> ConfigError:
    """Return one error that has the texts of all, so that a mapping is mended in one round."""
    return wrong[0] if len(wrong) == 1 else ConfigError("; ".join(each.message for each in wrong))


def values_of(kinds: Mapping[str, str], name: str, value: Any) -> dict[str, Any]:
    """Read one option by itself; return what it sets, under our names.

    Args:
        kinds: the annotation of each option.
        name: as it was written.
        value: as it was given.

    Raises:
        ConfigError: the option is unknown, or has no meaning here, or the value cannot be read.
    """
    reading = Reading(kinds)
    reading.take(name, value)
    return reading.values


class Reading:
    """The options read so far, under aiokprod's names."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.values: dict[str, Any] = {}
        self.written: dict[str, str] = {}
        self._kinds = kinds
        self._levels: dict[str, tuple[str, Any]] = {}
        self._ignored: dict[str, list[str]] = {}

    def take(self, name: str, value: Any) -> None:
        """Read one option. None means "not set", as in other clients, and so does a bare object, aiokafka's mark for it."""
        if type(value) is object:
            value = None
        ours = RENAMED.get(dotted(name), name.replace(".", "_"))
        # Java's key.serializer is a class, aiokprod's key_serializer an object: here the dot makes a difference.
        absent = None if name in self._kinds else (refused(name) or ignored(name))
        if absent is not None:
            if not is_settled(absent, value):
                if refused(name) is not None:
                    raise ConfigError(f"option {name!r} has no meaning here: {absent.advice}")
                self._ignore(name, absent.advice)
            return
        whose = None if name in self._kinds else of_others(name)
        if whose is not None:
            if value not in (None, ""):
                self._ignore(name, f"options of {whose}")
            return
        if dotted(name) == JAAS:
            self._take_jaas(name, value)
            return
        if dotted(name) in CODEC_LEVELS:
            if value is not None:
                self._levels[CODEC_LEVELS[dotted(name)]] = (name, typed("compression_level", value, "int", name))
            return
        if ours not in self._kinds:
            raise unknown_option(name, list(self._kinds))
        meant = _meant(name, ours, typed(ours, value, "str" if name in _READ_BY_US else self._kinds[ours], name))
        if meant is not None:
            self._set(ours, meant, name)

    def take_level(self, options: Mapping[str, Any]) -> None:
        """Set the compression level: Java has an option per codec, of which the one of the codec in use counts.

        librdkafka has one option, and ignores it without a codec that has levels.

        Args:
            options: take precedence over what was read.
        """
        codec = {**self.values, **options}.get("compression_type") or "none"
        name, level = self._levels.get(codec, ("", None)) if isinstance(codec, str) else ("", None)
        if level is not None and (name, level) != ("compression.gzip.level", -1):  # -1: zlib's default
            self._set("compression_level", level, name)
        written = self.written.get("compression_level")
        if written == "compression.level" and codec in WITHOUT_LEVELS:
            del self.values["compression_level"], self.written["compression_level"]
            self._ignore(written, f"compression_type {codec!r} has no levels")

    def leave_out_mechanism(self, options: Mapping[str, Any]) -> None:
        """Leave out a mechanism that is the default of another client, and that nothing uses.

        Args:
            options: take precedence over what was read.
        """
        values = {**self.values, **options}
        named = protocols_in(values.get("bootstrap_servers"))
        protocol = values.get("security_protocol") or (named[0] if named else "")
        login = ("sasl_username", "sasl_password", "sasl_oauth_token_provider")
        if str(protocol).startswith("SASL_") or any(values.get(each) is not None for each in login):
            return
        if self.values.get("sasl_mechanism") in OTHERS_MECHANISMS:
            del self.values["sasl_mechanism"]

    def tell_ignored(self) -> None:
        """Log one warning for all options without a meaning here: files of other clients are full of them."""
        told = [f"{', '.join(shown(name) for name in names)} ({why})" for why, names in self._ignored.items()]
        if told:
            _log.warning("options are ignored, as they have no meaning for a producer here: %s", "; ".join(told))

    def _take_jaas(self, name: str, value: Any) -> None:
        if value is None or not str(value).strip():
            return
        for option, text in credentials(str(value)).items():
            self._set(option.replace(".", "_"), text, name)

    def _ignore(self, name: str, why: str) -> None:
        self._ignored.setdefault(why, []).append(name)

    def _set(self, ours: str, value: Any, name: str) -> None:
        if ours in self.values and self.values[ours] != value:
            names = {dotted(self.written[ours]): self.written[ours], dotted(name): name}
            stronger = names.get(OVERRULED.get(ours, ("", ""))[1])
            if stronger is None or names.keys() != {*OVERRULED[ours]}:
                raise ConfigError(
                    f"options {self.written[ours]!r} and {name!r} are the same option ({ours}) with two values: give one of"
                    " them"
                )
            self._ignore(names[OVERRULED[ours][0]], f"{stronger} is given too, and counts")
            if stronger != name:
                return
        self.values[ours] = value
        self.written[ours] = name


_READ_BY_US = ("ssl.endpoint.identification.algorithm",)
_SYSTEM_BUFFER = (
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.receive.buffer.bytes",
)


def _tell_partitioner(names: list[str]) -> None:
    if names:
        _log.warning(
            "keys go to other partitions than with librdkafka (confluent-kafka), whose option %r was given: it hashes them"
            " with CRC-32 (partitioner='crc32', its consistent_random), this producer with murmur2, as Java's"
            " (partitioner='uniform_sticky'); set partitioner to the intended one",
            names[0],
        )


def _meant(name: str, ours: str, value: Any) -> Any:
    """Convert a value to what aiokprod's option takes; None leaves the option out."""
    match dotted(name):
        case "queue.buffering.max.kbytes":
            return value * 1024 if isinstance(value, int) else value
        case "ssl.endpoint.identification.algorithm":
            return _checks_host_name(name, value)
        case "compression.type" | "compression.codec":
            return None if value == "inherit" else value
        case "compression.level":
            return None if value == -1 else value  # librdkafka: the codec's default
        case "message.timeout.ms":
            return MAX_INT if value == 0 else value  # librdkafka: no bound
        case "retries":
            return MAX_INT if value == inf else value  # kafka-python
        case "metadata.recovery.strategy":
            return value.lower() if isinstance(value, str) else value  # Java: in any case
        case "connections.max.idle.ms":
            return -1 if value == 0 else value  # librdkafka: never
        case plain if plain in _SYSTEM_BUFFER:
            return None if value in (-1, 0) else value  # Java's and librdkafka's "as the system has it"
        case _:
            pass
    return _partitioner(value) if ours == "partitioner" else value


def _checks_host_name(name: str, value: Any) -> bool | None:
    algorithms = {"": False, "none": False, "https": True}
    if value is None:
        return None
    if _text(value) not in algorithms:
        raise ConfigError(
            f"{name} is {shown(value)}: it must be 'https' (host names are verified), or 'none' or empty (they are not)"
        )
    return algorithms[_text(value)]


def is_settled(absent: Absent, value: Any) -> bool:
    """Return whether an option that does not exist here has a value with which it changes nothing."""
    return value is None or _text(value) in absent.settled


def _partitioner(value: Any) -> Any:
    if isinstance(value, str):
        return PARTITIONER_NAMES.get(value, value)
    return DEFAULT_PARTITIONERS.get((type(value).__module__, type(value).__name__), value)


def _text(value: object) -> str:
    return str(value).strip().lower()
