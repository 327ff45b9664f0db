"""The cold-start ledger: what each replica's start was spent on, and whether a warm node was there for it. Pure."""
