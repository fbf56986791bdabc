"""Networks in memory, without sockets and clocks: routing tables (`tables`), and brokers with their clients (`cores`).

Tests, documentation, simulators and benchmarks use these two, and the server uses them to warm up.
"""
