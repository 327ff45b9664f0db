"""Pods that are placed together or not at all: who belongs to whom, and berths for all of them at once. Pure."""
