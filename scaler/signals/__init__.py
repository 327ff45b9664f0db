"""Where samples come from: each source keeps what came last, with its age, and never stops the others."""
