"""Routing tables: one contract, many models."""
