"""The real Kubernetes control plane as processes on loopback, without containers."""
