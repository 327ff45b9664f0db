"""Berthmaster beside the stock kube-scheduler on one real control plane with fake nodes: speed, Filter, memory."""
