"""PLAIN: one message, and what it cannot carry."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from aiokprod.cluster.dialing.sasl.mechanism import Finished
from aiokprod.cluster.dialing.sasl.plain import Plain
from aiokprod.config import Secret
from aiokprod.errors import AuthenticationError, ConfigError


@pytest.mark.parametrize(
    ("username", "password", "token"),
    [
        ("tim", "tanstaaftanstaaf", b"\0tim\0tanstaaftanstaaf"),
        ("a,b=c", ",=", b"\0a,b=c\0,="),
        ("Ünï", "☃", "\0Ünï\0☃".encode()),
        ("u", "p" * 10_000, b"\0u\0" + b"p" * 10_000),
    ],
)
def test_the_token_is_that_of_rfc_4616(username: str, password: str, token: bytes) -> None:  # faults: S13
    assert Plain(username, Secret(password)).start() == token


def test_an_empty_answer_is_success() -> None:
    mechanism = Plain("u", Secret("p"))
    mechanism.start()
    assert mechanism.step(b"") == Finished()


def test_a_second_round_is_refused() -> None:
    mechanism = Plain("u", Secret("p"))
    mechanism.start()
    with pytest.raises(AuthenticationError, match="no second round"):
        mechanism.step(b"more")


@pytest.mark.parametrize(("username", "password"), [("", "p"), ("u", ""), ("a\0b", "p"), ("u", "a\0b")])
def test_what_plain_cannot_carry_is_a_wrong_option(username: str, password: str) -> None:  # faults: S13
    with pytest.raises(ConfigError):
        Plain(username, Secret(password))


def test_it_never_asks_for_a_hash() -> None:
    with pytest.raises(AssertionError):
        Plain("u", Secret("p")).hashed(b"")


def test_nothing_of_a_secret_shows() -> None:  # faults: S18
    mechanism = Plain("user", Secret("canary"))
    assert "canary" not in repr(mechanism)
    with pytest.raises(ConfigError) as raised:
        Plain("user", Secret("canary\0"))
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("username", "password", "option"), [("u", "canary\udcff", "sasl_password"), ("canary\ud800", "p", "sasl_username")]
)
def test_credentials_without_utf_8_are_named_and_not_shown(username: str, password: str, option: str) -> None:
    # faults: S18
    with pytest.raises(ConfigError, match=f"{option} cannot be encoded in UTF-8") as raised:
        Plain(username, Secret(password))
    assert "canary" not in repr(raised.value)
    assert raised.value.__context__ is None


@pytest.mark.parametrize("password", ["hunter2-very-secret", 'pa ss/wö+rd?&"quoted\\', "1234"])
@pytest.mark.parametrize(
    "disguise",
    [
        str,
        str.upper,
        quote,
        quote_plus,
        lambda text: quote(text, safe=""),
        lambda text: text.encode().hex(),
        lambda text: repr(text)[1:-1],
        lambda text: json.dumps(text)[1:-1],
        lambda text: base64.b64encode(text.encode()).decode(),
    ],
)
def test_a_password_that_a_broker_repeats_is_taken_out(password: str, disguise: Callable[[str], str]) -> None:
    # faults: S18
    told = Plain("user", Secret(password)).told(f"no user has <{disguise(password)}> here\n", 300)
    assert re.fullmatch(r"no user has <\*\*\*.?={0,2}> here\\n", told)


@pytest.mark.parametrize("username", ["u", "us", "use"])
def test_a_token_that_a_broker_repeats_in_base64_loses_its_password(username: str) -> None:  # faults: S18
    mechanism = Plain(username, Secret("hunter2-very-secret"))
    token = base64.b64encode(mechanism.start()).decode()
    told = mechanism.told(f"no user has {token}", 300)
    assert "***" in told
    assert len(told) < len(token)


def test_a_broker_that_repeats_a_short_password_is_not_quoted_at_all() -> None:  # faults: S18
    for password in ("p", "pw", "pwd"):
        assert Plain("user", Secret(password)).told("no user has pwd, or power", 300) == "***"
    assert Plain("user", Secret("pwd")).told("no user has it", 300) == "no user has it"


def test_a_password_is_taken_out_before_the_text_is_cut() -> None:  # faults: S18
    assert Plain("user", Secret("hunter2")).told("x" * 8 + "hunter2", 10) == "x" * 8 + "**..."
