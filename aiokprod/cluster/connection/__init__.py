"""One connection to one broker, from the end of its handshake until its socket is gone: requests, answers and clocks."""
