"""One pure state machine per node, and what the pool as a whole then does. Nothing here awaits."""
