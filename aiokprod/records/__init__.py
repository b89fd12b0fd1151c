"""Record batches of format v2: encoding, decoding, compression, and columns of records. Pure."""
