"""Kernels of the tiles and rows of a negative space."""
