"""HTTP. Sees the engine only as AsyncLLM."""
