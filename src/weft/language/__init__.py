"""The filter language: its tree, text, JSON dialects, EventBridge patterns, Python builder, and meaning."""
