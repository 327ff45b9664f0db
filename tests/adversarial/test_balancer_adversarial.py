"""Whatever stands on the other side, the exporter and its client say what is wrong and go on."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import DecodeError
from fleet.http import FetchError, Http, tls_context
from scaler.balancer.seconds import Meter
from scaler.balancer.server import Listener, server_tls
from scaler.balancer.stat import backends, gauges
from scaler.balancer.wire import samples_from
from scaler.signals.balancer_timeline import Timeline
from tests.support.haproxy import backend, server, stat_text

WHOLE = stat_text([backend(server("slot1", in_flight=3, sessions=9), server("slot2", weight=4), in_progress=5)])


@given(st.integers(0, len(WHOLE) - 1), st.text(min_size=1, max_size=6))
def test_a_damaged_answer_is_read_or_refused_and_nothing_else(place: int, rubbish: str) -> None:
    text = WHOLE[:place] + rubbish + WHOLE[place + 1 :]
    with contextlib.suppress(DecodeError):
        found = backends(text)
        Meter().close(1.0, found, {})
    with contextlib.suppress(DecodeError):
        gauges(text)


@given(st.text(max_size=60))
def test_rubbish_is_refused(text: str) -> None:
    for read in (backends, gauges):
        with pytest.raises(DecodeError):
            read(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["exporter", "next", "seconds", "seq", "age_s", "backends", "name", "at_s", "servers"]),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(json_values)
def test_another_answer_is_refused_or_put_on_the_line(value: object) -> None:
    try:
        answer = samples_from(msgspec.json.encode(value))
    except DecodeError:
        return
    line = Timeline(senders=1)
    line.take(0, answer, 100.0)
    line.ready(103.0)


SECONDS = st.lists(
    st.builds(
        lambda seq, age_s, arrivals: {
            "seq": seq,
            "age_s": age_s,
            "backends": [{"name": "be", "at_s": 0.0, "arrivals": arrivals}],
        },
        st.integers(-(2**62), 2**62),
        st.floats(-1e9, 1e9),
        st.floats(-1e9, 1e9),
    ),
    max_size=6,
)


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), SECONDS), max_size=8))
def test_a_lying_exporter_makes_no_time_run_backwards(answers: list[tuple[str, list[dict[str, object]]]]) -> None:
    line = Timeline(senders=1)
    for turn, (run, seconds) in enumerate(answers):
        body = msgspec.json.encode({"exporter": run, "next": 1, "seconds": seconds})
        now_s = 1000.0 + turn
        line.take(0, samples_from(body), now_s)
        told = line.ready(now_s)
        assert all(now_s - 60.0 <= second.at_s <= now_s for second in told)
        assert all(second.arrivals is None or second.arrivals >= 0 for second in told)


def _certificate(directory: Path, name: str) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = directory / f"{name}.crt", directory / f"{name}.key"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(cert_file), str(key_file)


async def test_nothing_is_told_to_a_peer_whose_certificate_is_not_trusted(tmp_path: Path) -> None:
    cert_file, key_file = _certificate(tmp_path, "exporter")
    other, _ = _certificate(tmp_path, "other")

    async def say(_: web.Request) -> web.Response:
        return web.Response(body=b"fine")

    app = web.Application()
    app.router.add_get("/", say)
    async with Listener(app, "127.0.0.1", 0, server_tls(cert_file, key_file)) as listener:
        url = f"https://127.0.0.1:{listener.port}/"
        async with Http(tls=tls_context(cert_file)) as http:
            assert await http.get(url, timeout_s=5.0) == b"fine"
            with pytest.raises(FetchError):
                await http.get(url.replace("https", "http"), timeout_s=5.0)
        for untrusting in (None, tls_context(other)):
            async with Http(tls=untrusting) as http:
                with pytest.raises(FetchError) as failed:
                    await http.get(url, timeout_s=5.0)
                assert failed.value.kind == "tls"
