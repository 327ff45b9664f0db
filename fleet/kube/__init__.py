"""The only edge to the Kubernetes API."""
