"""How one pod is moved on a live cluster: its successor first, Ready, then it goes. Pure."""
