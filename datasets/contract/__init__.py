"""What data sets are fetched, read and split by."""
