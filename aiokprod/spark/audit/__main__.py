"""python -m aiokprod.spark.audit: the command."""

from __future__ import annotations

import sys

from aiokprod.spark.audit.command import main

if __name__ == "__main__":
    sys.exit(main())
