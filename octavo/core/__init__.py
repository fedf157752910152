"""The engine core: decides what is computed next. No torch, no numpy-heavy code."""
