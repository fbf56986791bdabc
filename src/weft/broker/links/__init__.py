"""The links of a broker to its neighbours: interest and events in both directions."""
