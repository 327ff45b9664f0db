"""A plant for autoscalers: one queue, replicas that take time to start, every request accounted for."""
