"""The checksum: CRC32C, over parts as over the whole."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod.records import crc
from aiokprod.records.crc import checksum

ALONE = """
import sys
from aiokprod.records.crc import checksum, load
assert checksum((b"1234", b"56789")) == 0xE3069283
print(*{"crc32c", "argparse", "importlib.metadata"} & set(sys.modules))
import crc32c  # another library does
assert crc32c.crc32c(b"123456789") == checksum((b"123456789",)) == 0xE3069283
"""


def slow_crc32c(data: bytes) -> int:
    """Compute CRC-32C bit by bit, polynomial 0x1EDC6F41 reflected."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_the_check_value_of_the_standard() -> None:
    assert checksum((b"123456789",)) == 0xE3069283  # RFC 3720's polynomial
    assert checksum((bytes(32),)) == 0x8A9136AA  # RFC 3720 B.4
    assert checksum(()) == checksum((b"",)) == 0


@given(st.lists(st.binary(max_size=50), max_size=5))
@settings(deadline=None, derandomize=True, database=None)
def test_parts_are_summed_as_the_whole(parts: list[bytes]) -> None:
    expected = slow_crc32c(b"".join(parts))
    assert checksum(parts) == expected
    assert checksum([memoryview(part) for part in parts]) == expected
    assert checksum([bytearray(part) for part in parts]) == expected


def test_the_extension_is_loaded_without_its_package() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def no_spec(name: str) -> None:
    return None


@pytest.mark.parametrize(
    ("name", "other"),
    [("find_spec", no_spec), ("ExtensionFileLoader", str), ("CHECK", 0), ("EXTENSION", "crc32c.none")],
)
def test_a_package_that_is_built_otherwise_is_imported(
    monkeypatch: pytest.MonkeyPatch, name: str, other: object
) -> None:
    monkeypatch.delitem(sys.modules, "crc32c", raising=False)
    monkeypatch.setattr(crc, name, other)
    assert crc.load.__wrapped__()(b"123456789", 0) == 0xE3069283
    assert "crc32c" in sys.modules
