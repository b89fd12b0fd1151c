"""Names of APIs, as the test's author writes them: `"Produce"`, `"produce"`, `"init_producer_id"` or the key."""

from __future__ import annotations

from typing import Final

NAMES: Final[dict[int, str]] = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    10: "FindCoordinator",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    22: "InitProducerId",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    60: "DescribeCluster",
}

_KEYS: Final = {name.lower(): key for key, name in NAMES.items()}


def api_key_of(api: int | str) -> int:
    """The key of an API. Raises ValueError naming those the mock serves."""
    if isinstance(api, int):
        return api
    key = _KEYS.get(api.replace("_", "").lower())
    if key is None:
        raise ValueError(f"the mock serves no API {api!r}; it serves {', '.join(NAMES.values())}")
    return key


def api_name_of(key: int) -> str:
    """Its name, or `Api<key>`."""
    return NAMES.get(key, f"Api{key}")
