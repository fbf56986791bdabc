"""Filter orders for people: as text, for Graphviz, and as pictures."""

from weft.drawing.order_view import tree as tree
from weft.drawing.order_view import view as view
