"""Draws from warm pools on a real control plane, through kills of every process; see `__main__`."""
