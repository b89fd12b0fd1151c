"""`describe`: a callback of the loop as text: its task and line, or its function and object."""

from __future__ import annotations

import asyncio
import functools
from pathlib import PurePath
from types import ModuleType
from typing import Any, Final, cast

_ASYNCIO: Final = PurePath(asyncio.__file__).parent


def callback_of(handle: asyncio.Handle) -> Any:
    """Return the callback of a handle, out of its partials; None if it was cancelled."""
    callback = cast(Any, handle)._callback
    while isinstance(callback, functools.partial):
        callback = cast("functools.partial[object]", callback).func
    return callback


def describe(handle: asyncio.Handle) -> str:
    """Return what a handle calls."""
    callback = callback_of(handle)
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()!r}{_line_of(owner.get_coro())}"
    name = getattr(callback, "__qualname__", None) or repr(callback)
    if owner is None or isinstance(owner, (type, ModuleType)):
        return f"{getattr(callback, '__module__', None) or ''}.{name}".lstrip(".")
    return f"{name} of {_short(owner)}"


def _line_of(awaited: Any) -> str:
    """Return where a coroutine waits: in the innermost one that is not asyncio's own."""
    found = ""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            path = PurePath(frame.f_code.co_filename)
            if not found or not path.is_relative_to(_ASYNCIO):
                found = f" in {awaited.__qualname__} ({path.name}:{frame.f_lineno})"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return found


def _short(owner: object) -> str:
    text = repr(owner)
    return text if len(text) < 100 else f"{text[:97]}..."
