"""A whole cluster in memory, in bad weather: its API, those who work in it, and a referee who sees every write."""
