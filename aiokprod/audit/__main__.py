"""python -m aiokprod.audit: the audit as a command."""

from __future__ import annotations

from aiokprod.audit.command import run_alone

if __name__ == "__main__":
    run_alone()
