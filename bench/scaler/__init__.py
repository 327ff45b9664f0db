"""The scaler against its rivals on the same traces."""
