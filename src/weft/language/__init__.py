"""The filter language: its tree, text, JSON dialects, Python builder, and meaning."""
