"""Covering-based routing: a filter is not told if one that covers it is."""
