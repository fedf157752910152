"""The flag table: every flag vLLM's command line knows, in vLLM's groups, as data."""
