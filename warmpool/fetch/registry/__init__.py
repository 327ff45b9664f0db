"""Container images from OCI registries into an OCI image layout."""
