"""Reading checkpoints."""
