"""The demo that `make run` starts."""
