"""Model artifacts and container images, fetched in parallel ranges onto a node before anybody asks for them."""
