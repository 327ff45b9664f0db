"""Measurements: packing quality, scale, the Kubernetes client; results lie in `bench/results`."""
