"""The version of this package: the one place that says it."""

from typing import Final

__version__: Final = "0.1.0"
