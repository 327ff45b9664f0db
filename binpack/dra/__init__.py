"""Which devices a pod's resource claims get, on which node (Dynamic Resource Allocation). Pure."""
