"""Benchmarks: rates and ratios, measured in one run."""
