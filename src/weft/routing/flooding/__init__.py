"""Flooding: every event goes everywhere."""
