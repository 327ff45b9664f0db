"""Addresses, and a server that takes a free port and gives it back."""

from __future__ import annotations

import aiohttp
import pytest

from binpack.server import Listen, Reply, Server, application, parse_listen
from fleet.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8610", "127.0.0.1", 8610),
        (":8611", "", 8611),
        ("[::1]:0", "::1", 0),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_addresses_are_read(text, host, port):
    assert parse_listen(text) == Listen(host=host, port=port)


@pytest.mark.parametrize("text", ["", "8610", "host:", "host:65536", "host:-1", "host:²", "host:http"])
def test_what_is_no_address_is_named(text):
    with pytest.raises(ConfigError, match="not HOST:PORT"):
        parse_listen(text)


async def test_it_serves_on_a_port_of_its_own_and_lets_go_of_it():
    async def echo(body: bytes) -> Reply:
        return Reply(body=body, content_type="text/plain")

    async def empty(_: bytes) -> Reply:
        return Reply(body=b"{}")

    app = application({"/echo": echo, "/empty": empty})
    async with Server(app, Listen(host="127.0.0.1", port=0)) as server, aiohttp.ClientSession() as session:
        port = server.port
        async with session.post(f"http://127.0.0.1:{port}/echo", data=b"hello") as answer:
            assert await answer.read() == b"hello"
        async with session.post(f"http://127.0.0.1:{port}/empty") as answer:
            assert (answer.content_type, await answer.read()) == ("application/json", b"{}")
    async with Server(application({}), Listen(host="127.0.0.1", port=port)) as again:
        assert again.port == port


async def test_a_taken_address_leaves_nothing_open():
    async with Server(application({}), Listen(host="127.0.0.1", port=0)) as first:
        second = Server(application({}), Listen(host="127.0.0.1", port=first.port))
        with pytest.raises(OSError, match="address already in use"):
            async with second:
                pass
        with pytest.raises(IndexError):
            _ = second.port
