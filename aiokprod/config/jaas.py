"""`sasl.jaas.config`, as configurations of Java clients and of Spark have it: extracts user name and password. Pure.

No part of the text appears in an error: it holds the password. Parsing takes linear time, whatever the text is: it may come
from outside.
"""

from __future__ import annotations

import re
from typing import Final

from aiokprod.errors import ConfigError

_MODULES: Final = ("PlainLoginModule", "ScramLoginModule")
_TOKEN_MODULES: Final = ("OAuthBearerLoginModule", "IAMLoginModule")
_FLAG: Final = re.compile(r"\w+")
# Matched where the setting before it ended, never searched for: each attempt begins at another place (linear time).
_SETTING: Final = re.compile(r'\s*(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([^\s;"\']+))', re.DOTALL)


def credentials(config: str, prefix: str = "") -> dict[str, str]:
    """Extract `sasl.username` and `sasl.password` of a login module for PLAIN or SCRAM.

    Args:
        config: the text of the option.
        prefix: prepended to the options' names in the error, as the user writes them.

    Raises:
        ConfigError: the text is for another module, or one of the two is missing.
    """
    if any(module.rpartition(".")[2] in _TOKEN_MODULES for module in config.split(None, 1)[:1]):
        raise ConfigError(
            f"{prefix}sasl.jaas.config names a Java class that gets tokens: leave it out, and set sasl_mechanism to OAUTHBEARER"
            " and sasl_oauth_token_provider to a function that returns a token (docs/how-to/security.md)"
        )
    found = _settings(config)
    if "username" not in found or "password" not in found:
        raise ConfigError(
            f"{prefix}sasl.jaas.config must be 'org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' username="..." password="...";\' (or scram.ScramLoginModule); else set {prefix}sasl.username and'
            f" {prefix}sasl.password"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _settings(config: str) -> dict[str, str]:
    """Return the settings of the one module; empty if the text is something else."""
    parts = config.split(None, 2)
    if len(parts) < 3 or parts[0].rpartition(".")[2] not in _MODULES or not _FLAG.fullmatch(parts[1]):
        return {}
    text, position, found = parts[2], 0, {}
    while (match := _SETTING.match(text, position)) is not None:
        found[match[1]] = _content(match)
        position = match.end()
    return found if text[position:].strip() in ("", ";") else {}


def _content(match: re.Match[str]) -> str:
    quoted = match[2] if match[2] is not None else match[3]
    return match[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
