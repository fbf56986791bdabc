"""Subsumption by negative space: a filter is not told if others together cover it."""
