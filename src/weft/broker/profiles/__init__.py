"""Profiles in a broker: events that are regions and last for a while."""
