"""Grammar-constrained output."""
