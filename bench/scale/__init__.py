"""What a decision costs as clusters and batches grow."""
