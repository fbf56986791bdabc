"""A broker as a process: sockets, clocks, threads, settings and security around the core."""
