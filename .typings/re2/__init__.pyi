# google-re2 has no types. For pyright everything of it is Any, as for mypy.
from typing import Any

def __getattr__(name: str) -> Any: ...
