"""Counts of what subscriptions ask for."""
