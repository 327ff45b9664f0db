"""What one replica may hold: the concurrency target learnt from live traffic, every 30 s, as a pure function."""
