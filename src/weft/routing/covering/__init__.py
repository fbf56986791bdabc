"""Covering-based routing: a filter is not told where one that covers it is."""
