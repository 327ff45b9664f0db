from __future__ import annotations

import pytest

from fleet.errors import ConfigError
from scaler.config import Sources, parsed, sources_from


def test_sources_are_known_by_name(tmp_path):
    path = tmp_path / "sources.yaml"
    path.write_text(
        """
balancers:
  main: {urls: ["https://a:1/", "https://b:1"], tokenFile: /t, caFile: /c}
prometheus:
  default: {url: http://prometheus:9090}
"""
    )
    found = sources_from(str(path))
    main = found.balancers["main"]
    assert (main.urls, main.token_file, main.ca_file) == (("https://a:1", "https://b:1"), "/t", "/c")
    assert found.prometheus["default"].urls == ("http://prometheus:9090",)


@pytest.mark.parametrize("content", ["", "balancers: {}\nprometheus:\n"])
def test_an_empty_file_names_no_sources(tmp_path, content):
    path = tmp_path / "sources.yaml"
    path.write_text(content)
    assert sources_from(str(path)) == sources_from("") == Sources()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([], "must hold the maps"),
        ({"balancer": {}}, "'balancer' is neither"),
        ({"balancers": ["x"]}, "balancers must map names"),
        ({"balancers": {"a": "http://x"}}, "balancers.a must be a map"),
        ({"balancers": {"a": {"url": "x"}}}, "balancers.a: url must be http"),
        ({"balancers": {"a": {"urls": []}}}, "balancers.a: url must be http"),
        ({"prometheus": {"p": {"url": "http://p", "token": "secret"}}}, "prometheus.p.token: no such setting"),
        ({"prometheus": {"p": {"url": "http://p", "certFile": "c"}}}, "certFile and keyFile go together"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(content, problem):
    with pytest.raises(ConfigError, match=problem):
        parsed(content)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"missing\.yaml: No such file"):
        sources_from(str(tmp_path / "missing.yaml"))
    (tmp_path / "odd.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"odd\.yaml: not YAML"):
        sources_from(str(tmp_path / "odd.yaml"))
