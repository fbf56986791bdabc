"""What filters mean as sets: normal form, covering, overlap, merging, subtraction."""
