"""The covering order of filters: posets, forests, merging, and the forests of queries and profiles."""
