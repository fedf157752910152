"""Flags in, frozen configuration out."""
