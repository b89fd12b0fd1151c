"""python -m aiokprod.audit: the audit as a command."""

from __future__ import annotations

import sys

from aiokprod.audit.command import main

if __name__ == "__main__":
    sys.exit(main())
