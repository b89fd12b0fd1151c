"""Which version of an API is picked, and what is believed of a broker's list."""

from __future__ import annotations

import pytest

from aiokprod.errors import UnsupportedVersionError
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from aiokprod.wire.versions import ApiVersions


@pytest.mark.parametrize(
    ("theirs", "ours", "picked"),
    [
        ((0, 13), (3, 13), 13),
        ((0, 9), (3, 13), 9),
        ((5, 20), (3, 13), 13),
        ((3, 3), (3, 13), 3),
        ((13, 20), (3, 13), 13),
    ],
)
def test_the_highest_version_that_both_speak_is_picked(
    theirs: tuple[int, int], ours: tuple[int, int], picked: int
) -> None:
    assert ApiVersions({0: theirs}).pick(0, *ours) == picked


@pytest.mark.parametrize("theirs", [(0, 2), (14, 20)])
def test_ranges_that_do_not_meet_are_an_error_that_names_both(theirs: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        ApiVersions({0: theirs}).pick(0, 3, 13)
    assert f"API 0: the broker supports versions {theirs[0]} to {theirs[1]}, aiokprod 3 to 13" in str(caught.value)


def test_an_api_the_broker_does_not_know_is_an_error() -> None:
    with pytest.raises(UnsupportedVersionError, match="the broker does not support API 75"):
        ApiVersions({0: (3, 13)}).pick(75, 0, 0)


def test_entries_that_make_no_sense_are_dropped() -> None:  # faults: H15
    response = ApiVersionsResponse(
        api_keys=[ApiVersion(0, 3, 13), ApiVersion(1, 5, 4), ApiVersion(2, -1, 4), ApiVersion(-7, 0, 0)],
        finalized_features_epoch=7,
        finalized_features=[FinalizedFeatureKey("transaction.version", 2, 0)],
    )
    versions = ApiVersions.from_response(response)
    assert versions.ranges == {0: (3, 13), -7: (0, 0)}
    assert versions.finalized_features == {"transaction.version": 2}
    assert versions.features_epoch == 7


def test_without_features_there_are_none() -> None:
    assert ApiVersions({}).finalized_features == {}
