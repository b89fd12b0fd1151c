"""Tokens for OAUTHBEARER: what can be sent, what is refused, and that nothing of a token shows."""

from __future__ import annotations

import copy
import functools
import pickle
import re
import string
import traceback
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod import OAuthToken
from aiokprod.config import ProducerConfig, Secret
from aiokprod.config.oauth_token import function_of, name_of, token_of
from aiokprod.errors import ConfigError

CANARY = "canary-t0ken"
EXPIRY_MS = 1_900_000_000_000
OAUTH: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
LETTERS = string.ascii_letters
BEARER = LETTERS + string.digits + "-._~+/"
VALUE = "".join(map(chr, range(0x21, 0x7F))) + " \t\r\n"


def refused(*parts: Any, **named: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        OAuthToken(*parts, **named)
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    ours = [str(frame.locals) for frame in shown.stack if "tests/unit" not in frame.filename]
    assert ours, "the frames of the library are looked at"
    assert CANARY not in str(raised.value) + "".join(ours)
    return str(raised.value)


def test_a_token_has_its_expiry_and_its_extensions() -> None:
    token = OAuthToken("a.b-c_d~e+f/g==", EXPIRY_MS, {"logicalCluster": "lkc-1"})
    assert (token.token, token.expires_at_ms) == (Secret("a.b-c_d~e+f/g=="), EXPIRY_MS)
    assert dict(token.extensions) == {"logicalCluster": "lkc-1"}
    bare = OAuthToken(Secret("a"))
    assert (bare.expires_at_ms, dict(bare.extensions)) == (None, {})
    assert bare == OAuthToken("a") and hash(bare) == hash(OAuthToken("a")) and bare != token


def test_the_mapping_of_extensions_is_a_copy_that_cannot_be_changed() -> None:
    given = {"a": "b"}
    token = OAuthToken("t", extensions=given)
    given["c"] = "d"
    assert dict(token.extensions) == {"a": "b"}
    with pytest.raises(TypeError):
        token.extensions["e"] = "f"  # type: ignore[index]


@given(st.text(BEARER, min_size=1), st.integers(0, 3))
def test_each_token_of_rfc_6750_is_taken(text: str, padding: int) -> None:  # faults: S14
    assert OAuthToken(text + "=" * padding).token.reveal() == text + "=" * padding


@given(st.text(BEARER), st.characters().filter(lambda c: c not in BEARER + "="), st.text(BEARER))
def test_no_other_character_is_taken(before: str, other: str, after: str) -> None:  # faults: S14
    refused(f"{before}{other}{after}")


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ("", "is empty"),
        (f"{CANARY}\n", "line end"),
        (f" {CANARY}", "strip"),
        (f"Bearer {CANARY}", "word Bearer"),
        (f"{CANARY}\x01auth=Bearer other\x01\x01", "no bearer token has"),
        (f"{CANARY},a=b", "no bearer token has"),
        (f"={CANARY}", "no bearer token has"),
        (f"{CANARY}\0", "no bearer token has"),
        (f"{CANARY}\udcff", "no bearer token has"),
        (CANARY.encode(), "of type bytes"),
        (None, "of type NoneType"),
    ],
)
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: Any, says: str) -> None:  # faults: S14, S18
    assert says in refused(token)
    if isinstance(token, str):
        assert says in refused(Secret(token))


@pytest.mark.parametrize(
    ("expiry", "says"),
    [
        (EXPIRY_MS / 1000, "in milliseconds"),
        (0, "since 1970"),
        (-5, "since 1970"),
        (float("nan"), "since 1970"),
        (float("inf"), "since 1970"),
        (10**400, "since 1970"),
        (True, "type bool"),
        ("1900000000000", "type str"),
    ],
)
def test_an_expiry_that_is_no_time_in_milliseconds_is_refused(expiry: Any, says: str) -> None:
    assert says in refused(CANARY, expiry)


@given(st.dictionaries(st.text(LETTERS, min_size=1), st.text(VALUE, min_size=1), max_size=4))
def test_extensions_of_rfc_7628_are_taken(extensions: dict[str, str]) -> None:  # faults: S14
    if any(name.lower() == "auth" for name in extensions):
        assert "place of the token" in refused("t", None, extensions)
    else:
        assert dict(OAuthToken("t", None, extensions).extensions) == extensions


@given(st.text(VALUE), st.characters().filter(lambda c: c not in VALUE), st.text(VALUE))
def test_no_other_character_is_taken_in_the_value_of_an_extension(before: str, other: str, after: str) -> None:
    # faults: S14
    refused("t", None, {"a": f"{before}{other}{after}"})


@given(st.text(min_size=1).filter(lambda name: not re.fullmatch("[A-Za-z]+", name)))
def test_no_other_name_of_an_extension_is_taken(name: str) -> None:  # faults: S14
    refused("t", None, {name: "value"})


@pytest.mark.parametrize("extensions", [{"a": ""}, {"a": None}, {1: "b"}, {"auth": "Bearer x"}, {"AUTH": "x"}, ["a=b"]])
def test_extensions_that_cannot_be_sent_are_refused(extensions: Any) -> None:
    refused("t", None, extensions)


def test_nothing_of_a_token_shows_and_it_cannot_be_pickled() -> None:  # faults: S18
    token = OAuthToken(CANARY, EXPIRY_MS, {"identityPoolId": CANARY})
    assert CANARY not in f"{token!r} {token}"
    assert "identityPoolId" in repr(token) and str(EXPIRY_MS) in repr(token)
    with pytest.raises(TypeError, match="cannot be pickled") as raised:
        pickle.dumps(token)
    assert CANARY not in str(raised.value)
    assert copy.copy(token) is token and copy.deepcopy(token) is token
    assert replace(token, expires_at_ms=None).expires_at_ms is None


# ---------------------------------------------------------------------- what a provider returns


@pytest.mark.parametrize(
    ("answer", "expiry"),
    [
        ("t", None),
        (Secret("t"), None),
        (("t", EXPIRY_MS), EXPIRY_MS),
        ((Secret("t"), None), None),
        (OAuthToken("t", EXPIRY_MS), EXPIRY_MS),
    ],
)
def test_an_answer_of_a_provider_is_a_token(answer: object, expiry: int | None) -> None:
    token = token_of(answer)
    assert isinstance(token, OAuthToken)
    assert (token.token.reveal(), token.expires_at_ms) == ("t", expiry)


def test_extensions_of_a_provider_are_those_of_an_answer_without() -> None:
    more = token_of("t", {"a": "b"})
    assert isinstance(more, OAuthToken) and dict(more.extensions) == {"a": "b"}
    own = token_of(OAuthToken("t"), {"a": "b"})
    assert isinstance(own, OAuthToken) and dict(own.extensions) == {}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "a NoneType"),
        (CANARY.encode(), "a bytes"),
        ((CANARY,), "a tuple"),
        ((CANARY, EXPIRY_MS, "principal", {}), "a tuple"),
        ([CANARY, EXPIRY_MS], "a list"),
        ({"access_token": CANARY}, "a dict"),
        ((CANARY, 1_900_000_000), "looks like seconds"),
        (f"{CANARY}\n", "line end"),
        ((None, EXPIRY_MS), "of type NoneType"),
    ],
)
def test_another_answer_is_told_by_its_type_and_not_shown(answer: object, says: str) -> None:  # faults: S14, S18
    told = token_of(answer)
    assert isinstance(told, str)
    assert says in told
    assert CANARY not in told


# ---------------------------------------------------------------------- providers as an option


class OfAiokafka:
    """As a provider of aiokafka: an object with a method."""

    async def token(self) -> str:
        return CANARY

    def extensions(self) -> dict[str, str]:
        return {}


@dataclass
class Shown:
    """A provider whose own repr shows its state."""

    secret: str = CANARY

    def __call__(self) -> str:
        return self.secret


def signed() -> tuple[str, int]:
    return CANARY, EXPIRY_MS


def for_region(region: str) -> str:
    return f"{CANARY}-{region}"


PROVIDERS: dict[str, Any] = {
    "function": signed,
    "async method": OfAiokafka().token,
    "object": OfAiokafka(),
    "callable object": Shown(),
    "method of an object that shows itself": Shown().__call__,
    "partial": functools.partial(for_region, CANARY),
    "lambda": lambda: CANARY,
}


@pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)
def test_functions_and_objects_are_providers_and_show_nothing(provider: Any) -> None:  # faults: S18
    config = ProducerConfig(bootstrap_servers="kafka", sasl_oauth_token_provider=provider, **OAUTH)
    assert config.sasl_oauth_token_provider is provider
    assert callable(function_of(provider))
    shown = repr(config) + "".join(config.explain())
    assert CANARY not in shown
    assert name_of(provider) in shown
    same = config.replace(linger_ms=config.linger_ms)
    assert same == config and hash(same) == hash(config)
    assert config != config.replace(sasl_oauth_token_provider=lambda: "other")


@pytest.mark.parametrize(
    "provider",
    [CANARY, Secret(CANARY), OAuthToken(CANARY), OfAiokafka, Shown, for_region, {"token": CANARY}, 5],
    ids=["text", "secret", "token", "class", "class of callables", "function of an argument", "mapping", "number"],
)
def test_what_is_no_provider_is_refused_and_not_shown(provider: Any) -> None:  # faults: S18
    with pytest.raises(
        ConfigError, match=r"sasl_oauth_token_provider is of type .*function without arguments"
    ) as raised:
        ProducerConfig(bootstrap_servers="kafka", sasl_oauth_token_provider=provider, **OAUTH)
    assert CANARY not in str(raised.value)


def test_a_config_is_pickled_with_its_provider_and_without_a_token() -> None:  # faults: S18
    config = ProducerConfig(bootstrap_servers="kafka", sasl_oauth_token_provider=signed, **OAUTH)
    pickled = pickle.dumps(config)
    assert CANARY.encode() not in pickled
    assert pickle.loads(pickled) == config
