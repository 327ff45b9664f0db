"""The exporter's HTTP side: who may ask, and what."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from fleet.errors import ConfigError
from fleet.http import TokenFile
from scaler.balancer.server import application
from scaler.balancer.service import run_exporter


class Asked:
    def __init__(self, token: TokenFile | None) -> None:
        self.since: list[int] = []
        self.refused = 0
        self.app = application(
            samples=self._samples,
            registry=CollectorRegistry(),
            not_ready=lambda: "nothing was read yet",
            token=token,
            refused=self._refused,
        )

    def _samples(self, since: int) -> bytes:
        self.since.append(since)
        return b"{}"

    def _refused(self) -> None:
        self.refused += 1


async def test_only_the_token_opens_samples_and_metrics(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    asked = Asked(TokenFile(path))
    async with TestClient(TestServer(asked.app)) as client:
        wrong = [{}, {"Authorization": "secret"}, {"Authorization": "Bearer"}, {"Authorization": "Bearer secre"}]
        wrong += [{"Authorization": "Basic secret"}, {"Authorization": "Bearer sécret"}]
        for headers in wrong:
            for where in ("/v1/samples", "/metrics", "/other"):
                assert (await client.get(where, headers=headers)).status == 401
        assert asked.refused == 3 * len(wrong)
        right = {"Authorization": "Bearer secret"}
        assert (await client.get("/v1/samples?since=7", headers=right)).status == 200
        assert (await client.get("/metrics", headers=right)).status == 200
        assert (await client.get("/other", headers=right)).status == 404
        assert (await client.get("/healthz")).status == 200
        assert (await client.get("/readyz")).status == 503
        path.unlink()
        assert (await client.get("/metrics", headers=right)).status == 401, "no file, nobody"
    assert asked.since == [7]


@pytest.mark.parametrize("since", ["-1", "x", "1.5", "1" * 19, "١"])
async def test_a_since_that_is_no_number_is_refused(since: str) -> None:
    asked = Asked(None)
    async with TestClient(TestServer(asked.app)) as client:
        assert (await client.get("/v1/samples", params={"since": since})).status == 400
        assert (await client.post("/v1/samples", data=b"x")).status == 405
    assert asked.since == []


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"listen": "0.0.0.0:0"}, "token"),
        ({"listen": ":0"}, "token"),
        ({"listen": "nonsense"}, "HOST:PORT"),
        ({"tls_cert_file": "/none"}, "key"),
        ({"tls_cert_file": "/none", "tls_key_file": "/none"}, "/none"),
        ({"token_file": "/none/token"}, "/none/token"),
        ({"balancers": 0}, "balancers"),
        ({"log_socket": "/none/log"}, "/none/log"),
    ],
)
async def test_what_cannot_be_served_is_refused_at_the_start(given: dict, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        await run_exporter(**({"runtime_socket": "/none/s", "sets_limits": False, "listen": "127.0.0.1:0"} | given))
