"""Orders of filters for people: as text, for Graphviz, and as pictures."""
