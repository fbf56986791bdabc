"""A broker without sockets and clocks: messages in, effects out."""
