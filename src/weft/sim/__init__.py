"""Simulations: tables and brokers on networks that exist in memory only."""
