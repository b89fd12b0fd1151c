"""The command `aiokprod`. Needs the extra `cli` (click, rich)."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` and all other imports come after Ctrl-C is caught
if TYPE_CHECKING:
    from aiokprod.cli.commands import Commands


def _open_closed_streams() -> None:
    """Open what the parent has closed (`>&-`), before a socket gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123 - open as long as the process runs


def main() -> None:
    """Entry point of the console script."""
    try:
        from aiokprod.cli.common.interrupts import quiet_interrupt

        with quiet_interrupt():
            command = _group()
        if command is not None:
            command.main(prog_name="aiokprod")
    except KeyboardInterrupt:  # before a handler was set, or between two of them
        raise SystemExit(130) from None


def _extras(arguments: list[str]) -> str:
    """Return the extras of a command line, all at once."""
    uses_spark = arguments[:1] == ["audit"] or (arguments[:1] == ["demo"] and "--spark" in arguments)
    return "audit,cli" if uses_spark else "cli"


def _group() -> Commands | None:
    """Import what the command line needs; return its group, or None if there is nothing left to do."""
    from importlib.util import find_spec

    from aiokprod import __version__, compiled

    _open_closed_streams()
    version = f"aiokprod {__version__} ({'compiled' if compiled else 'pure Python'})"
    try:
        import click as _click

        has_packages = bool(_click) and find_spec("rich") is not None  # not imported: few commands need it
    except (ImportError, ValueError):
        has_packages = False
    if not has_packages:
        if sys.argv[1:] == ["--version"]:
            print(version)
            return None
        print(
            f'the command line needs a few packages: pip install "aiokprod[{_extras(sys.argv[1:])}]"', file=sys.stderr
        )
        raise SystemExit(2)

    from aiokprod.cli.commands import group

    return group(__version__, version)
