"""Filter orders for people: as text, for Graphviz, and as pictures."""
