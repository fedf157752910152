"""The API side of the engine: requests in, text out."""
