"""Where each model pod goes, on which devices: the state of nodes and pods in, plan out."""
