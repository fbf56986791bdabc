"""The mobility laboratory: hand-over protocols of moving clients, side by side (thesis, chapter 5)."""
