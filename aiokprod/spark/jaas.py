"""`kafka.sasl.jaas.config`, as jobs for Spark's own sink have it: user name and password out of it. Pure.

Nothing of the text shows in an error: it holds the password.
"""

from __future__ import annotations

import re
from typing import Final

from aiokprod.errors import ConfigError

_MODULE: Final = re.compile(r"(?:[\w.]+\.)?(?:Plain|Scram)LoginModule\s+\w+\s+(.*?)\s*;?\s*", re.DOTALL)
_SETTING: Final = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([^\s;"\']+))')


def credentials(config: str) -> dict[str, str]:
    """`sasl.username` and `sasl.password` of a login module for PLAIN or SCRAM.

    Raises:
        ConfigError: it is another module's, or one of the two is missing.
    """
    module = _MODULE.fullmatch(config.strip())
    found = {} if module is None else {match[1]: _content(match) for match in _SETTING.finditer(module[1])}
    if "username" not in found or "password" not in found:
        raise ConfigError(
            "kafka.sasl.jaas.config must be 'org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' username="..." password="...";\' (or scram.ScramLoginModule); else set kafka.sasl.username and'
            " kafka.sasl.password"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _content(match: re.Match[str]) -> str:
    quoted = match[2] if match[2] is not None else match[3]
    return match[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
