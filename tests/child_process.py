"""A child process of a test."""

from __future__ import annotations

import subprocess
from typing import Any, AnyStr


class Child(subprocess.Popen[AnyStr]):
    """A process that ends with its block: of a test that fails, Popen would wait for it, perhaps for ever."""

    def __exit__(self, *error: Any) -> None:
        self.kill()
        super().__exit__(*error)
