"""The words every part of Berthmaster shares, and its only edges to the outside."""
