"""The simple model: every subscription is told to every neighbour."""
