"""Kernels of ranges on a curve."""
