"""Merging-based routing: what covering would tell is told as few mergers."""
