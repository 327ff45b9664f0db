"""Does a component answer? One short request on loopback, with the cluster's own certificates."""

from __future__ import annotations

import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A health address on 127.0.0.1; answering 200 is healthy."""

    port: int
    path: str
    is_tls: bool = False


def trust(pki: Path) -> ssl.SSLContext:
    """Return a context that trusts the cluster's authority and shows the administrator's certificate."""
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


def answers(probe: Probe, context: ssl.SSLContext, *, timeout_s: float = 2.0) -> bool:
    """Return True if the component says that it is healthy."""
    connection = (
        http.client.HTTPSConnection("127.0.0.1", probe.port, timeout=timeout_s, context=context)
        if probe.is_tls
        else http.client.HTTPConnection("127.0.0.1", probe.port, timeout=timeout_s)
    )
    try:
        connection.request("GET", probe.path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def post(port: int, path: str, body: bytes, context: ssl.SSLContext, *, timeout_s: float = 10.0) -> tuple[int, bytes]:
    """Return status and body of the API server's answer to a JSON object; status 0 where none came."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout_s, context=context)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error).encode()
    finally:
        connection.close()
