"""`octavo bench serve`: a load test of a running server, with the names and output of vLLM's."""
