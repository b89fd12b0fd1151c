"""Makes the rigs beside it (`rig`, `stage_rig`, `virtual_rig`, ...) importable from the folders below."""
