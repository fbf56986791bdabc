"""The network: brokers and their clients. Law: what goes wrong on a wire ends one connection, never a broker."""
