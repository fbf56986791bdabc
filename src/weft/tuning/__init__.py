"""Choosing the dimensions, cells, caps and filters of a routing table from samples."""
