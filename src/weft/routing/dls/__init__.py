"""Routing by label sets (DLS)."""
