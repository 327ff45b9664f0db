"""Other schedulers, built and run as their makers publish them."""
