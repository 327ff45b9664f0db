"""Where each model pod goes, on which devices: snapshot and pods in, plan out."""
