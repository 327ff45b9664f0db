"""Warm nodes in the planner: who may go there, which to draw, and whose miss it is. Pure."""
