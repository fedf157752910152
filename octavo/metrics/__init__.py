"""Counters, Prometheus, the stats line, the start-up table."""
