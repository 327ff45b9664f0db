"""What the arrival rate will be when a replica ordered now is Ready: a floor that must earn its place."""
