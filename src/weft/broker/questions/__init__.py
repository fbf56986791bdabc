"""Questions of clients and of other brokers."""
