"""The messages between clients, brokers and neighbouring brokers, and their encoding."""
