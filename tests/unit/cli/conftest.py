"""Makes the rigs beside it (`client_rig`, `pool_rig`, `fake_connection`, ...) importable from the folders below."""
