"""Brokers and clients under simulated faults: a seed gives one run, and every run is checked."""
