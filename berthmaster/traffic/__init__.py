"""Real traffic on one machine: HAProxy with slots, replica processes with service-time profiles, an open-loop load."""
