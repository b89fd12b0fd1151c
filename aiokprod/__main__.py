"""python -m aiokprod: the command line."""

from aiokprod.cli.main import main

main()
