"""Kernels of labels: codes, counts and counting filters."""
