"""Makes the rig beside it (`cli_runs`) importable from the folders below."""
