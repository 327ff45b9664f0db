"""`python -m berthmaster`."""

from berthmaster.cli import main

main()
