"""Files of `name=value` lines: properties of Java clients, configurations of librdkafka and kcat. Pure except for `read`.

The syntax is that of java.util.Properties: `=`, `:` or a space after the name, `#` and `!` begin a comment, a backslash at
the end continues the line, and a backslash before a character escapes it. No error shows a value: it may be a secret.
"""

from __future__ import annotations

import os
import re
from typing import Final

from aiokprod.errors import ConfigError

_NAME: Final = re.compile(r"(?:[^\\=:\s]|\\.)+")
_BETWEEN: Final = re.compile(r"\s*[=:]?\s*")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_MEANINGS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def read(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read the options in a file.

    Raises:
        ConfigError: the file cannot be read, or a line of it is not `name=value`.
    """
    return parse(_text_of(path), os.fspath(path))


def read_all(
    path: str | os.PathLike[str],
) -> tuple[dict[str, str], list[tuple[str, ConfigError]], dict[str, int]]:
    """Read the options in a file; return them, all that is wrong with its lines, and the line of each option.

    Raises:
        ConfigError: the file cannot be read.
    """
    return parse_all(_text_of(path), os.fspath(path))


def _text_of(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:  # noqa: PTH123 - the Path of an empty text is a folder
            return file.read()
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)!r} cannot be read: {error.strerror or type(error).__name__}") from None
    except ValueError:  # not UTF-8, or a NUL in the path
        raise ConfigError(f"{os.fspath(path)!r} is not a file of UTF-8 text") from None


def parse(text: str, file: str) -> dict[str, str]:
    """Parse the options in a text; `file` is its name in errors."""
    options, wrong, _ = parse_all(text, file)
    for _, error in wrong:
        raise error
    return options


def parse_all(text: str, file: str) -> tuple[dict[str, str], list[tuple[str, ConfigError]], dict[str, int]]:
    """Parse the options in a text; return them, (name of the option, error) for all that is wrong, and the line of each.

    The name is empty for a line that has none. An option with two values is not among the options.
    """
    options: dict[str, str] = {}
    where: dict[str, int] = {}
    wrong: list[tuple[str, ConfigError]] = []
    for number, line in _logical_lines(text):
        if line.startswith("["):
            says = f"{file}, line {number} is a section: options are lines of name=value, without sections"
            wrong.append(("", ConfigError(says)))
            continue
        match = _NAME.match(line)
        if match is None:
            wrong.append(("", ConfigError(f"{file}, line {number} has no name: write name=value")))
            continue
        name = _unescaped(match[0])
        between = _BETWEEN.match(line, match.end())
        assert between is not None  # the pattern also matches nothing
        value = _unescaped(line[between.end() :])
        if options.get(name, value) != value:
            says = f"{file}: {name!r} has two values, in lines {where[name]} and {number}"
            wrong.append((name, ConfigError(says)))
            continue
        options[name], where[name] = value, number
    twice = {name for name, _ in wrong}
    return {name: value for name, value in options.items() if name not in twice}, wrong, where


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Return (number of its first line, line without leading space), comments left out and continuations joined."""
    lines: list[tuple[int, str]] = []
    pieces: list[str] = []
    begin = 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not pieces:
            if not line or line[0] in "#!":
                continue
            begin = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pieces.append(line[:-1])
            continue
        lines.append((begin, "".join([*pieces, line])))
        pieces = []
    if pieces:
        lines.append((begin, "".join(pieces)))
    return lines


def _unescaped(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _MEANINGS.get(escape, escape)

    return _ESCAPE.sub(meaning, text)
