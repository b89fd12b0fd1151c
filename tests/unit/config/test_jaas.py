"""`sasl.jaas.config`: user name and password of a login module, and nothing of it in an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokprod.config.jaas import credentials
from aiokprod.errors import ConfigError

CANARY = "hunter2"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    "text",
    [
        f'{PLAIN} required username="u" password="{CANARY}";',
        f"  {PLAIN}\n\trequired\n username = u\n password='{CANARY}' ;\n",
        f'kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required a=1 username="\\u" password="{CANARY}"',
        f'PlainLoginModule optional username=v username="u" password="{CANARY}";',
    ],
)
def test_user_and_password_are_found_where_java_has_them(text: str) -> None:
    assert credentials(text) == {"sasl.username": "u", "sasl.password": CANARY}


@pytest.mark.parametrize(
    "text",
    [
        "",
        CANARY,
        f'{PLAIN} required password="{CANARY}";',
        f'com.sun.security.auth.module.Krb5LoginModule required username="u" password="{CANARY}";',
        f'{PLAIN} required username="u" password="{CANARY}',
        f'{PLAIN} required username="u" password="{CANARY}"; and more',
        f'{PLAIN} req-uired username="u" password="{CANARY}";',
    ],
)
def test_anything_else_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^kafka\.sasl\.jaas\.config must be") as raised:
        credentials(text, "kafka.")
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        f'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientSecret="{CANARY}";',
        "software.amazon.msk.auth.iam.IAMLoginModule required;",
    ],
)
def test_a_module_that_gets_tokens_is_told_what_does_it_here(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.jaas\.config.*sasl_oauth_token_provider") as raised:
        credentials(text, "kafka.")
    assert CANARY not in str(raised.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda n: f"{PLAIN} required " + "a" * n,
        lambda n: f"{PLAIN} required " + " " * n + "-",
        lambda n: f'{PLAIN} required a="' + "\\\\" * n,
        lambda n: f"{PLAIN} required " + "a=b " * n + "-",
        lambda n: "a." * n + " required x",
        lambda n: "PlainLoginModule" + " " * n + "required" + " " * n,
    ],
)
def test_a_long_text_is_refused_in_a_time_that_grows_with_its_length(make: Callable[[int], str]) -> None:
    for text in (make(1_000), make(300_000)):  # quadratic, the longer one would take half an hour
        with pytest.raises(ConfigError):
            credentials(text)
