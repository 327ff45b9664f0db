"""Who must go so that somebody more urgent has a seat: proven first, as few and as unimportant as possible. Pure."""
