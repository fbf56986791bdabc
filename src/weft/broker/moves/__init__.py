"""Sessions that move from one broker to another, and lose nothing."""
