"""Sampling: order of operations and per-request inputs."""
