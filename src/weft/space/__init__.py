"""The content space: grids over a schema, space-filling curves, labels."""
