"""The command `aiokprod`. Needs the extra `cli` (click, rich)."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script."""
    try:
        import click
        import rich  # noqa: F401
    except ImportError:
        print('the command line needs a few packages: pip install "aiokprod[cli]"', file=sys.stderr)
        raise SystemExit(2) from None

    from aiokprod import __version__, compiled
    from aiokprod.cli.audit import audit
    from aiokprod.cli.cluster import cluster
    from aiokprod.cli.demo import demo

    @click.group(context_settings={"help_option_names": ["-h", "--help"]})
    @click.version_option(
        __version__, prog_name="aiokprod", message=f"%(prog)s %(version)s ({'compiled' if compiled else 'pure Python'})"
    )
    def aiokprod() -> None:
        """An asyncio-native Apache Kafka producer: try it, and develop with it."""

    aiokprod.add_command(demo)
    aiokprod.add_command(cluster)
    aiokprod.add_command(audit)
    aiokprod(prog_name="aiokprod")
