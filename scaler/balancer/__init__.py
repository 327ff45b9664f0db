"""Beside the balancer: reads HAProxy's runtime socket, serves one sample a second, sets what each replica may hold.

An admin socket is never opened to the network, so a small process stands beside it and answers over HTTP with a token.
"""
