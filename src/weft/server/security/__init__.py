"""Security: authentication of clients, and access rules."""
