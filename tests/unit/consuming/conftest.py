"""Makes the rigs beside it (`consuming_rig`, `fake_group`) importable from the folders below."""
