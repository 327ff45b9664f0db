"""The controller: what it watches, what it remembers of each endpoint, and how decisions are carried out and told."""
