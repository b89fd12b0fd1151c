"""Makes the modules beside it (`mock_batches`, `mock_client`, `mock_requests`) importable from the folders below."""
