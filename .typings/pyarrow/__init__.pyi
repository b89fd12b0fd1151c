# pyarrow has no types (its core is a C extension). For pyright everything of it is Any, as for mypy.
from typing import Any

def __getattr__(name: str) -> Any: ...
