"""The designs of the ring, compared as in the paper."""
