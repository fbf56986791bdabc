"""Simulators, benchmarks and the demo. Weft never imports this package; its commands are entry points."""
