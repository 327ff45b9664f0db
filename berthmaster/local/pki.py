"""A certificate authority of the cluster's own, and the certificates that its processes and people show each other."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fleet import labels

_VALID = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(hours=1)
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom a client certificate stands for: Kubernetes reads user and groups out of CN and O."""

    user: str
    groups: tuple[str, ...] = ()


def service_account(name: str, namespace: str = labels.NAMESPACE) -> Subject:
    """Return the subject that the API server takes for this ServiceAccount.

    RBAC and admission policies judge by user name and groups, so a local process shows the rights of its
    ServiceAccount without a token that would have to be renewed.
    """
    return Subject(
        user=f"system:serviceaccount:{namespace}:{name}",
        groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}"),
    )


CLIENTS = {
    "admin": Subject(user="berthmaster-admin", groups=("system:masters",)),
    "kube-controller-manager": Subject(user="system:kube-controller-manager"),
    "kube-scheduler": Subject(user="system:kube-scheduler"),
    "kwok": Subject(user="kwok", groups=("system:masters",)),
    "extender": service_account("berthmaster-extender"),
    "planner": service_account("berthmaster-planner"),
    "scaler": service_account("berthmaster-scaler"),
    "warmpool": service_account("berthmaster-warmpool"),
}


def write_all(folder: Path, *, now_s: float) -> None:
    """Write the authority, one server certificate, one certificate per client and the service-account key pair.

    Files: ca.crt, ca.key, server.crt, server.key, NAME.crt and NAME.key per client, sa.pub, sa.key; keys are readable
    by their owner only.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = datetime.datetime.fromtimestamp(now_s, datetime.UTC)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _authority(ca_key, now)
    _write_pair(folder, "ca", ca_key, ca)
    server_key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
    server = (
        _leaf(_name("berthmaster-local"), server_key, ca, now, ExtendedKeyUsageOID.SERVER_AUTH)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    _write_pair(folder, "server", server_key, server)
    for client, subject in CLIENTS.items():
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(subject.user, subject.groups)
        certificate = _leaf(name, key, ca, now, ExtendedKeyUsageOID.CLIENT_AUTH).sign(ca_key, hashes.SHA256())
        _write_pair(folder, client, key, certificate)
    sa_key = ec.generate_private_key(ec.SECP256R1())
    _write(folder / "sa.key", _private(sa_key))
    _write(
        folder / "sa.pub",
        sa_key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo),
    )


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime.datetime) -> x509.Certificate:
    name = _name("berthmaster-local-ca")
    return (
        _builder(name, name, key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    ca: x509.Certificate,
    now: datetime.datetime,
    purpose: x509.ObjectIdentifier,
) -> x509.CertificateBuilder:
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(_public(ca))
    return (
        _builder(subject, ca.subject, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(authority, critical=False)
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str, organisations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation) for organisation in organisations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _public(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_pair(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    _write(folder / f"{name}.key", _private(key))
    _write(folder / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
