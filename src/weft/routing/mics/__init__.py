"""Routing by curve ranges (MICS)."""
