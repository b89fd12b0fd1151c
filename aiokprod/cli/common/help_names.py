"""The spellings of `--help`."""

from __future__ import annotations

from typing import Any, Final

HELP: Final[dict[str, Any]] = {"help_option_names": ["-h", "--help"]}
