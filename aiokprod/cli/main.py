"""The command `aiokprod`. Needs the extra `cli` (click, rich)."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    """Entry point of the console script."""
    from aiokprod import __version__, compiled

    version = f"aiokprod {__version__} ({'compiled' if compiled else 'pure Python'})"
    try:
        import click

        import_module("rich")
    except ImportError:
        if sys.argv[1:] == ["--version"]:
            print(version)
            return
        print('the command line needs a few packages: pip install "aiokprod[cli]"', file=sys.stderr)
        raise SystemExit(2) from None

    from aiokprod.cli.audit import audit
    from aiokprod.cli.cluster import cluster
    from aiokprod.cli.demo import demo
    from aiokprod.cli.transactions import transactions

    @click.group(context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(__version__, prog_name="aiokprod", message=version)
    def aiokprod() -> None:
        """An asyncio-native Apache Kafka producer: try it, and develop with it."""  # noqa: D401 - the help text

    aiokprod.add_command(demo)
    aiokprod.add_command(cluster)
    aiokprod.add_command(audit)
    aiokprod.add_command(transactions)
    aiokprod(prog_name="aiokprod")
