"""Loops over arrays: arrays in, arrays out, no filters."""
