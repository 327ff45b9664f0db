"""The controller of warm pools: watches in, decisions by the pure parts, writes and words out."""
