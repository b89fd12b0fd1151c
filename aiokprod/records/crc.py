"""The checksum of a batch: CRC32C over its parts, without joining them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader, PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final, TypeAlias

EXTENSION: Final = "crc32c._crc32c"
CHECK: Final = 0xE3069283
"""of the bytes "123456789", by RFC 3720's polynomial"""


Crc32c: TypeAlias = Callable[[bytes | bytearray | memoryview, int], int]


@cache
def load() -> Crc32c:
    """Return the function of the `crc32c` package, loaded on the first call: a producer calls this when it starts.

    The function is in an extension module. The package around it takes 25 ms to import, as it looks up its own version
    among all installed packages, and imports a command line (`-X importtime`): with the extension alone it is one.
    """
    found = None if "crc32c" in sys.modules else _extension()
    if found is not None:
        return found
    from crc32c import crc32c

    return crc32c


def _extension() -> Crc32c | None:
    """Return the function from its extension module, without the package; None if the package is built otherwise."""
    package = find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec(EXTENSION, package.submodule_search_locations)
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return None
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        function: Crc32c = module.crc32c
        return function if function(b"123456789", 0) == CHECK else None
    except (ImportError, AttributeError):
        return None


def checksum(parts: Sequence[bytes | bytearray | memoryview]) -> int:
    """Return the CRC32C of the parts one after the other."""
    crc32c = load()
    value = 0
    for part in parts:
        value = crc32c(part, value)
    return value
