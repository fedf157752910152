"""Octavo beside other engines on one machine in one run: loads, servers, targets, plots."""
