"""`python -m warmpool.fetch`."""

from warmpool.fetch.command import main

main()
