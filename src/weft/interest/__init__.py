"""Interest as ranges, labels and uncovered space: the models of the papers as library components."""
