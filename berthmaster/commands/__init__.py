"""One file per sub-command; each holds one click command named `command`."""
