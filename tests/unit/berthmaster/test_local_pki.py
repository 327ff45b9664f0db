"""Certificates that strict clients accept, and whom they stand for."""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import verification
from cryptography.x509.oid import ExtensionOID, NameOID

from berthmaster.local import pki

NOW_S = 1_800_000_000.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pki")
    pki.write_all(made, now_s=NOW_S)
    return made


def certificate(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def test_the_server_certificate_names_loopback_and_the_service(folder: Path) -> None:
    names = certificate(folder, "server").extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    assert isinstance(names, x509.SubjectAlternativeName)
    assert {"localhost", "kubernetes.default"} <= set(names.get_values_for_type(x509.DNSName))
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


@pytest.mark.parametrize("client", sorted(pki.CLIENTS))
def test_client_certificates_chain_to_the_authority(folder: Path, client: str) -> None:
    store = verification.Store([certificate(folder, "ca")])
    verifier = (
        verification.PolicyBuilder()
        .store(store)
        .time(datetime.datetime.fromtimestamp(NOW_S, datetime.UTC))
        .extension_policies(
            ca_policy=verification.ExtensionPolicy.webpki_defaults_ca(),
            ee_policy=verification.ExtensionPolicy.permit_all(),
        )
        .build_client_verifier()
    )
    assert verifier.verify(certificate(folder, client), []).chain


def test_subjects_are_the_users_and_groups_that_rbac_knows(folder: Path) -> None:
    def subject(name: str) -> tuple[str, list[str]]:
        found = certificate(folder, name).subject
        user = found.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        groups = [str(part.value) for part in found.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        return str(user), groups

    assert subject("admin")[1] == ["system:masters"]
    assert subject("kube-scheduler") == ("system:kube-scheduler", [])
    assert subject("planner") == (
        "system:serviceaccount:berthmaster-system:berthmaster-planner",
        ["system:serviceaccounts", "system:serviceaccounts:berthmaster-system"],
    )


def test_keys_fit_their_certificates_and_are_private(folder: Path) -> None:
    for name in ("server", *pki.CLIENTS):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    for key in folder.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_the_service_account_keys_are_a_pair(folder: Path) -> None:
    private = serialization.load_pem_private_key((folder / "sa.key").read_bytes(), None)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert (folder / "sa.pub").read_bytes() == public


def test_a_clock_that_runs_a_little_behind_still_accepts_them(folder: Path) -> None:
    for name in ("ca", "server", "admin"):
        assert certificate(folder, name).not_valid_before_utc.timestamp() <= NOW_S - 600
