"""Credentials: every way a kubeconfig gives them, renewed in time, and never shown."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
import ssl
import stat

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fleet.errors import ConfigError
from fleet.kube.credentials import Access, Connection, connection
from tests.support.clock import ManualClock

SECRET = "s3cr3t-t0ken"


@pytest.fixture(scope="module")
def pair():
    """A self-signed certificate and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def b64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


@pytest.fixture
def write(tmp_path):
    def _write(user, cluster=None, **more):
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [
                {"name": "one", "context": {"cluster": "c", "user": "u"}},
                {"name": "two", "context": {"cluster": "d", "user": "u"}},
            ],
            "clusters": [
                {"name": "c", "cluster": cluster or {"server": "http://one.example:80/"}},
                {"name": "d", "cluster": {"server": "http://two.example"}},
            ],
            "users": [{"name": "u", "user": user}],
            **more,
        }
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return _write


async def test_a_token(write):
    found = connection(write({"token": SECRET}))
    access = await found.access()
    assert found.base_url == "http://one.example:80"
    assert access.authorization == f"Bearer {SECRET}"
    assert access.tls is None
    assert not access.is_from_file


async def test_another_context(write):
    assert connection(write({"token": SECRET}), "two").base_url == "http://two.example"


async def test_the_environment_names_the_file(write, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", f"/nowhere:{write({'token': SECRET})}")
    assert connection().base_url == "http://one.example:80"


async def test_user_and_password(write):
    access = await connection(write({"username": "me", "password": "pw"})).access()
    assert access.authorization == "Basic bWU6cHc="


async def test_client_certificates_leave_no_key_behind(write, pair, tmp_path, monkeypatch):
    certificate, key = pair
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    user = {"client-certificate-data": b64(certificate), "client-key-data": b64(key)}
    cluster = {"server": "https://one.example", "certificate-authority-data": b64(certificate)}
    path = write(user, cluster | {"tls-server-name": "other.example", "proxy-url": "http://proxy.example"})
    for _ in range(2):  # a second load finds the first one's files gone
        access = await connection(path).access()
        assert isinstance(access.tls, ssl.SSLContext)
        assert access.tls.verify_mode is ssl.CERT_REQUIRED
        assert len(access.tls.get_ca_certs()) == 1
        assert (access.server_name, access.proxy) == ("other.example", "http://proxy.example")
    assert [entry.name for entry in tmp_path.iterdir()] == ["config"]


async def test_verification_is_only_off_when_asked_for(write):
    cluster = {"server": "https://one.example", "insecure-skip-tls-verify": True}
    assert (await connection(write({}, cluster)).access()).tls.verify_mode is ssl.CERT_NONE


async def test_a_rotated_token_file_is_read_again(write, tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    clock = ManualClock()
    found = connection(write({"tokenFile": str(file)}), clock=clock)
    assert (await found.access()).authorization == "Bearer first"
    file.write_text("second\n")
    await clock.advance(59.0)
    assert (await found.access()).authorization == "Bearer first"
    await clock.advance(2.0)
    assert (await found.access()).authorization == "Bearer second"
    file.unlink()
    await clock.advance(61.0)
    assert (await found.access()).authorization == "Bearer second"


def plugin(tmp_path, life_s, clock):
    """An exec plugin that counts its runs in the token it gives."""
    script = tmp_path / "plugin"
    expiry = datetime.datetime.fromtimestamp(clock.now_s() + life_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = f'"status":{{"token":"run-\'$(wc -l < {tmp_path}/runs | tr -d " ")\'","expirationTimestamp":"{expiry}"}}'
    script.write_text(
        "#!/bin/sh\n"
        f"echo >> {tmp_path}/runs\n"
        f'echo \'{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",{status}}}\'\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(script),
            "interactiveMode": "Never",
        }
    }


async def test_an_exec_plugin_runs_again_before_its_token_expires(write, tmp_path):
    clock = ManualClock()
    found = connection(write(plugin(tmp_path, 3600, clock)), clock=clock)
    assert (await found.access()).authorization == "Bearer run-1"
    await clock.advance(3299.0)
    assert (await found.access()).authorization == "Bearer run-1"
    await clock.advance(2.0)
    assert [a.authorization for a in await asyncio.gather(found.access(), found.access())] == ["Bearer run-2"] * 2


async def test_a_plugin_whose_tokens_are_always_old_is_not_run_for_every_call(write, tmp_path):
    clock = ManualClock()
    found = connection(write(plugin(tmp_path, -10, clock)), clock=clock)
    for _ in range(20):
        await found.access()
    assert (await found.access()).authorization == "Bearer run-1"


async def test_a_refused_access_is_renewed_once_for_all(tmp_path):
    loads = iter(range(9))
    found = Connection(lambda: Access(base_url="http://x", authorization=str(next(loads))), ManualClock())
    refused = await found.access()
    assert await asyncio.gather(*(found.renew(refused) for _ in range(5))) == [True] * 5
    assert (await found.access()).authorization == "1"


async def test_in_cluster(tmp_path, pair, monkeypatch):
    token, certificate = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text(SECRET)
    certificate.write_bytes(pair[0])
    for name, path in (("SERVICE_TOKEN_FILENAME", token), ("SERVICE_CERT_FILENAME", certificate)):
        monkeypatch.setattr(f"kubernetes.config.incluster_config.{name}", str(path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    clock = ManualClock()
    found = connection(clock=clock)
    assert found.base_url == "https://[fd00::1]:443"
    assert (await found.access()).authorization == f"Bearer {SECRET}"
    token.write_text("rotated")
    await clock.advance(61.0)
    assert (await found.access()).authorization == "Bearer rotated"


def test_neither_kubeconfig_nor_cluster(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no kubeconfig, and not inside a cluster"):
        connection()
    with pytest.raises(ConfigError, match="context 'x' asked for"):
        connection(context="x")


def test_a_missing_file():
    with pytest.raises(ConfigError, match="no such file"):
        connection("/nowhere/config")


@pytest.mark.parametrize(
    ("user", "more"),
    [
        ({"token": SECRET, "exec": {}}, {"current-context": "none"}),
        ({"token": SECRET}, {"clusters": []}),
        ({"token": SECRET}, {"clusters": "c"}),
        ({"token": SECRET}, {"clusters": [{"name": "c", "cluster": {"token": SECRET}}]}),
        ({"exec": {"command": "/nowhere", "apiVersion": "v1", "env": [{"name": "T", "value": SECRET}]}}, {}),
        ({"exec": {"command": "false", "apiVersion": "v1", "args": [SECRET]}}, {}),
        ({"exec": {"args": [SECRET]}}, {}),
        (
            {"client-certificate-data": "%%%", "client-key-data": SECRET},
            {"clusters": [{"name": "c", "cluster": {"server": "https://x"}}]},
        ),
        ({"tokenFile": "/nowhere", "password": SECRET}, {}),
        ({"token": SECRET}, {"contexts": [{"context": {"user": "u", "token": SECRET}}]}),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_one_clear_error(write, user, more, caplog):
    path = write(user, **more)
    with pytest.raises(ConfigError) as caught:
        connection(path)
    assert str(caught.value).startswith(f"kubeconfig {path}: ")
    assert caught.value.__cause__ is None
    assert SECRET not in str(caught.value) + caplog.text


def test_what_is_not_yaml_is_not_quoted(tmp_path):
    path = tmp_path / "config"
    path.write_text(f"users:\n- token: '{SECRET}\n  : [")
    with pytest.raises(ConfigError, match="not YAML, line") as caught:
        connection(str(path))
    assert SECRET not in str(caught.value)


async def test_nothing_secret_is_shown(write, caplog):
    caplog.set_level(logging.DEBUG)
    found = connection(write({"token": SECRET}, {"server": "http://x", "proxy-url": f"http://u:{SECRET}@proxy"}))
    access = await found.access()
    assert SECRET in access.authorization
    assert SECRET in access.proxy
    shown = json.dumps([repr(found), str(found), repr(access), str(access), caplog.text])
    assert SECRET not in shown
