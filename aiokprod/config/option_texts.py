"""Options given as text, as in files and environment variables; and errors that name what was written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from aiokprod.config.option_checks import shown
from aiokprod.errors import ConfigError

BOOLEANS: Final = {
    "true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False,
}  # fmt: skip


def typed(option: str, value: Any, kind: str, written: str) -> Any:
    """Convert a text to the option's type; return other values unchanged.

    Args:
        option: its name.
        value: as it was given.
        kind: the option's annotation.
        written: the name that the user wrote, for the error.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if option == "acks":
        return text.lower()
    if option == "security_protocol":
        return text.upper()
    wanted, _, _ = kind.partition(" ")
    try:
        if wanted == "bool":
            return BOOLEANS[text.lower()]
        if wanted == "int":
            return int(text)
        if wanted == "float":
            number = float(text)
            return int(number) if number.is_integer() else number
    except (KeyError, ValueError):
        pass  # raised below, outside: as the context of that error this one would show the text, which may be a secret
    else:
        return value
    what = {"bool": "one of " + ", ".join(BOOLEANS), "int": "a whole number", "float": "a number"}[wanted]
    raise ConfigError(f"{written} is {shown(value)}: it must be {what}")


def named_as_written(error: ConfigError, written: Mapping[str, str]) -> ConfigError:
    """Return the same error, with the names that the user wrote beside aiokprod's."""
    names = [
        f"{option} was given as {name}"
        for option, name in written.items()
        if name != option and re.search(rf"\b{option}\b", error.message)
    ]
    return ConfigError(f"{error.message} ({'; '.join(names)})") if names else error
