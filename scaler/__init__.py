"""How many replicas an endpoint needs, every 5 s, and how many requests each may hold, every 30 s."""
