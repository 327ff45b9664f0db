"""Who makes nodes: one protocol, five ways."""
