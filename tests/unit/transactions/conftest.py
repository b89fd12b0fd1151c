"""Makes the rigs beside it (`txn_rig`, `transaction_world`, ...) importable from the folders below."""
