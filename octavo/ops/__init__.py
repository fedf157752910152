"""The seam to the hardware: one set of operations, two backends."""
