"""One file per question that flags, checkpoint and device answer together."""
