"""Options from environment variables.

`AIOKPROD_<OPTION>` for every option that a text can say; a closed list of `KAFKA_` aliases below them in rank. Nothing
else that begins with KAFKA_ is looked at: Kubernetes injects such variables for every Service called kafka, and broker
images take their own settings from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiokprod.config.mapping import typed
from aiokprod.config.unknown import unknown_option
from aiokprod.errors import ConfigError

if TYPE_CHECKING:
    from aiokprod.config.producer_config import ProducerConfig

PREFIX = "AIOKPROD_"
ALIASES = {
    "KAFKA_BOOTSTRAP_SERVERS": "bootstrap_servers",
    "KAFKA_CLIENT_ID": "client_id",
    "KAFKA_SECURITY_PROTOCOL": "security_protocol",
    "KAFKA_SASL_MECHANISM": "sasl_mechanism",
    "KAFKA_SASL_USERNAME": "sasl_username",
    "KAFKA_SASL_PASSWORD": "sasl_password",
    "KAFKA_SSL_CAFILE": "ssl_cafile",
    "KAFKA_SSL_CERTFILE": "ssl_certfile",
    "KAFKA_SSL_KEYFILE": "ssl_keyfile",
}
FROM_FILE = ("sasl_password", "ssl_key_password", "ssl_key_pem")
NOT_OPTIONS = frozenset({"AIOKPROD_PURE", "AIOKPROD_COMPILE"})
NOT_OPTION_STARTS = ("AIOKPROD_KAFKA_", "AIOKPROD_TEST_", "AIOKPROD_REQUIRE_", "AIOKPROD_LEDGER_")
NOT_TEXTS = frozenset(
    {"ssl_context", "key_serializer", "value_serializer", "interceptors", "on_delivery_error", "dialer"}
)


def read_environment(environ: Mapping[str, str], config: type[ProducerConfig]) -> dict[str, Any]:
    """The options that the environment sets."""
    kinds = {item.name: str(item.type) for item in fields(config) if item.name not in NOT_TEXTS}
    found: dict[str, Any] = {}
    for variable, option in ALIASES.items():
        if environ.get(variable):
            found[option] = typed(option, environ[variable], kinds[option])
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in NOT_OPTIONS or variable.startswith(NOT_OPTION_STARTS):
            continue
        option = variable[len(PREFIX) :].lower()
        if option.removesuffix("_file") in FROM_FILE and option.endswith("_file"):
            option = option.removesuffix("_file")
            try:
                text = Path(text).read_text().rstrip("\n")
            except OSError as missing:
                raise ConfigError(f"{variable} names a file that cannot be read: {missing.strerror}") from None
        if option not in kinds:
            raise unknown_option(variable, [f"{PREFIX}{name.upper()}" for name in kinds])
        found[option] = typed(option, text, kinds[option])
    return found
