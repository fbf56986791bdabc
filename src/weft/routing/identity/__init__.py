"""Identity-based routing: equal filters are told once."""
