"""How many replicas: pure rules over one endpoint's memory, decided every 5 s.

`track` remembers one sample a second, `evidence` reads it, `grow`, `shrink` and `zero` judge, `decide` joins them.
"""
