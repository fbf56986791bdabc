"""Peer-to-peer rendezvous: interest is placed on a Chord ring by hashing, and events visit where it may be."""
