"""How models mark what they think, named as in vLLM."""
