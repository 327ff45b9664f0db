"""How many nodes should be warm: learnt from the real draws and lead times, with the reason and its numbers."""
