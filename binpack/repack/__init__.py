"""Which pods to move so that others fit, devices become whole or nodes empty. Pure; who carries it out is elsewhere."""
