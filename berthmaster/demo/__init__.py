"""The demo: a published GPU trace placed on a real kube-scheduler, recounted by code that did not place it."""
