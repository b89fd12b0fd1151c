"""Every generated message in every version, against kio: another implementation of the same definitions.

Both directions: our bytes are kio's bytes, kio reads ours to its equal value, and we read kio's to our equal value.
"""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any

import pytest
from kio.index import KioIndexError
from kio_twins import MODES, all_messages, kio_decode, kio_encode, kio_twin, our_name, twins

from aiokprod.errors import UnsupportedVersionError

MESSAGES = all_messages()
KIO_CANNOT: dict[str, list[int]] = {}
"""Messages and versions kio does not have: none of ours with kio 0.6.5, and the test below fails if that changes."""


def versions_of(message: type[Any]) -> range:
    return range(message.MIN_VERSION, message.MAX_VERSION + 1)


def missing(message: type[Any]) -> list[int]:
    found = []
    for version in versions_of(message):
        try:
            kio_twin(message, version)
        except KioIndexError:
            found.append(version)
    return found


def test_every_version_of_every_message_has_a_twin() -> None:
    lacking = {message.__name__: gaps for message in MESSAGES if (gaps := missing(message))}
    assert lacking == KIO_CANNOT
    assert len(MESSAGES) == 82  # 41 APIs, a request and a response each
    assert len({message.API_KEY for message in MESSAGES}) == 41
    assert sum(len(versions_of(message)) for message in MESSAGES) == 418


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_both_write_and_read_the_same(message: type[Any]) -> None:
    compared = 0
    for version in versions_of(message):
        kio = kio_twin(message, version)
        for count, mode in enumerate(MODES):
            ours, theirs = twins(message, kio, mode, Random(f"{message.__name__} {version} {count}"))
            data = ours.encode(version)
            assert data == kio_encode(theirs), (version, mode, ours)
            assert kio_decode(kio, data) == theirs, (version, mode)
            assert message.decode(data, version) == ours, (version, mode)
            compared += 1
    assert compared == len(versions_of(message)) * len(MODES)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_a_value_of_another_version_is_refused_or_left_out(message: type[Any]) -> None:
    """Never written where this version has no place for it: kio could not read that."""
    for version in versions_of(message):
        kio = kio_twin(message, version)
        has = {our_name(message, item.name) for item in fields(kio)}
        for other in versions_of(message):
            rich, _ = twins(message, kio_twin(message, other), "most", Random(f"{version} {other}"))
            try:
                data = rich.encode(version)
            except UnsupportedVersionError as refused:
                assert f"version {version} has no field" in str(refused)
            else:
                assert kio_encode(kio_decode(kio, data)) == data
            for item in fields(rich):
                if item.name in has:
                    continue
                alone, _ = twins(message, kio, "any", Random(f"{version} {other}"))
                before = alone.encode(version)
                setattr(alone, item.name, getattr(rich, item.name))
                try:
                    assert alone.encode(version) == before
                except UnsupportedVersionError as refused:
                    assert f"version {version} has no field {camel(item.name)}, but it is set" in str(refused)


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_twins_of_other_values_have_other_bytes(message: type[Any]) -> None:
    """The comparison above would see a field that is never written."""
    version = message.MAX_VERSION
    found = {
        twins(message, kio_twin(message, version), "any", Random(f"{message.__name__} {seed}"))[0].encode(version)
        for seed in range(20)
    }
    if message.__name__ in EMPTY:
        assert len(found) == 1
    else:
        assert len(found) > 1


EMPTY: set[str] = set()
"""Messages without a field."""
