"""Nodes that are proven warm before demand comes, sized by what a miss costs, each handed out exactly once."""
