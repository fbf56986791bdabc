"""Clients of a broker: the session as a machine without sockets, and the faces that users call."""
