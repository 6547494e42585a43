"""The explorer's server: who it answers, and what it refuses."""

import dataclasses
import http.client
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from softermax.cache import cache_dir
from softermax.explorer.server import MAX_BODY, Explorer, is_loopback
from softermax.files import write_text
from softermax.silicon.flow import EnergyResult, Result


def ask(
    explorer: Explorer,
    path: str = "/api/compute",
    body: bytes | str | None = None,
    method: str | None = None,
    **headers: str,
) -> tuple[int, Any, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", explorer.server_port, timeout=30)
    sent = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    connection.request(method or ("GET" if body is None else "POST"), path, body, sent)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    if reply.headers.get_content_type() == "application/json" and content:
        return reply.status, json.loads(content), reply
    return reply.status, content, reply


def test_serves_the_page_and_nothing_from_elsewhere(explorer: Explorer) -> None:
    status, page, reply = ask(explorer, "/")
    assert status == 200
    assert b"Softermax explorer" in page
    assert "default-src 'self'" in reply.headers["Content-Security-Policy"]
    for path in ("/style.css", "/explorer.js", "/charts.js", "/steps.js", "/icon.svg"):
        status, content, _ = ask(explorer, path)
        assert status == 200
        assert b"https://" not in content
    status, content, reply = ask(explorer, "/", method="HEAD")
    assert (status, content) == (200, b"")
    assert int(reply.headers["Content-Length"]) == len(page)


@pytest.mark.parametrize("path", ["/nothing", "/../server.py", "/static/index.html", "/%2e%2e/server.py"])
def test_other_paths_are_not_found(explorer: Explorer, path: str) -> None:
    status, answer, _ = ask(explorer, path)
    assert status == 404
    assert path in answer["error"]


def test_answers_a_row(explorer: Explorer) -> None:
    status, answer, _ = ask(explorer, body='{"scores": [2, 1, 3]}')
    assert status == 200
    assert answer["value"] == [0.2890625, 0.140625, 0.5703125]


def result(**changes: Any) -> Result:
    energy = [
        EnergyResult("gaussian", "glitches", 0.9, {}, 0.5, 0.3, 0.1),
        EnergyResult("attention", "zero delay", 0.6, {}, 0.3, 0.2, 0.1),
        EnergyResult("attention", "glitches", 0.7, {}, 0.4, 0.2, 0.1),
    ]
    values: dict[str, Any] = {
        "unit": "unnormed", "design": "softermax", "preset": "paper", "width": 16, "library": "nangate45",
        "clock_ns": 1.0, "wire": "none", "area_um2": 5000.0, "area_by_unit": {}, "cells": {},
        "slack_ns": 0.1, "critical_path": [], "words_equal": 1, "energy": energy,
    }  # fmt: skip
    return Result(**values | changes)


def test_shows_area_and_energy_where_they_are_cached(
    explorer: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path))
    assert ask(explorer, body='{"scores": [1]}')[1]["silicon"] == []
    folder = cache_dir("silicon", "results")
    for name, made in {
        "a": result(area_um2=6000.0),
        "b": result(),
        "c": result(width=8, area_um2=2500.0),
        "d": result(design="two-pass", preset=""),
    }.items():
        write_text(folder / f"{name}.json", json.dumps(dataclasses.asdict(made)))
        os.utime(folder / f"{name}.json", (ord(name), ord(name)))
    found = ask(explorer, body='{"scores": [1], "spec": {"base": "fold"}}')[1]["silicon"]
    assert found == [
        {"unit": "unnormed", "library": "nangate45", "clock_ns": 1.0, "area_um2": 5000.0, "slack_ns": 0.1,
         "pj_per_element": 0.7, "stimulus": "attention"},
    ]  # fmt: skip
    found = ask(explorer, body='{"scores": [1], "spec": {"slice_width": 8}}')[1]["silicon"]
    assert [figure["area_um2"] for figure in found] == [2500.0]
    assert ask(explorer, body='{"scores": [1], "spec": {"slice_width": 9}}')[1]["silicon"] == []


def test_answers_several_requests_on_one_connection(explorer: Explorer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", explorer.server_port, timeout=30)
    for scores in ([1], [2, 3]):
        connection.request(
            "POST", "/api/compute", json.dumps({"scores": scores}), {"Content-Type": "application/json"}
        )
        reply = connection.getresponse()
        assert len(json.loads(reply.read())["output"]) == len(scores)
    connection.close()


def test_an_impossible_spec_is_an_answer(explorer: Explorer) -> None:
    status, answer, _ = ask(explorer, body='{"scores": [1], "spec": {"powsum": "Q(10,0)"}}')
    assert status == 200
    assert answer["field"] == "powsum"
    assert "at least 1 fraction bits" in answer["error"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not JSON"),
        (b"{", 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[1, 2]", 400, "JSON object, got list"),
        (b"[" * 30000, 400, "not JSON"),
        (b'{"scores": [NaN]}', 400, "NaN is not a number"),
        (b'{"scores": [1e999]}', 422, "must be -1e6 to 1e6"),
        (b'{"scores": [' + b"9" * 5000 + b"]}", 400, "not JSON"),
        (b'{"scores": ["1"]}', 422, "must be a number"),
        (json.dumps({"scores": [0] * 4097}).encode(), 422, "must be 1 to 4096"),
        (b" " * (MAX_BODY + 1), 413, f"must be at most {MAX_BODY}"),
        (b" " * (12 * MAX_BODY), 413, f"must be at most {MAX_BODY}"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_refuses_malformed_and_oversized_requests(
    explorer: Explorer, body: bytes, status: int, says: str
) -> None:
    got, answer, _ = ask(explorer, body=body)
    assert got == status
    assert says in answer["error"]


def test_refuses_wrong_methods_kinds_and_lengths(explorer: Explorer) -> None:
    status, _, reply = ask(explorer, "/api/compute")
    assert (status, reply.headers["Allow"]) == (405, "POST")
    status, _, reply = ask(explorer, "/", body="{}")
    assert (status, reply.headers["Allow"]) == (405, "GET, HEAD")
    assert ask(explorer, "/nothing", body="{}")[0] == 404
    assert ask(explorer, body="{}", Content_Type="text/plain")[0] == 415
    assert ask(explorer, body="{}", Content_Length="a few")[0] == 411
    assert ask(explorer, body="0\r\n\r\n", Transfer_Encoding="chunked")[0] == 411
    assert ask(explorer, method="DELETE")[0] == 501


@pytest.mark.parametrize(
    "host", ["attacker.example", "127.0.0.1.attacker.example", "192.168.0.7", "", "[::1"]
)
def test_refuses_a_name_that_is_not_its_own(explorer: Explorer, host: str) -> None:
    assert ask(explorer, "/", Host=host)[0] == 403
    assert ask(explorer, body='{"scores": [1]}', Host=host)[0] == 403


def test_refuses_a_page_of_another_site(explorer: Explorer) -> None:
    body = '{"scores": [1]}'
    assert ask(explorer, body=body, Origin="https://attacker.example")[0] == 403
    assert ask(explorer, body=body, Origin="null")[0] == 403
    assert ask(explorer, body=body, Origin=explorer.url.rstrip("/"))[0] == 200


def test_answers_to_localhost(explorer: Explorer) -> None:
    assert ask(explorer, "/", Host=f"localhost:{explorer.server_port}")[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.7", "example.org"])
def test_listens_on_loopback_only(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match="--allow-remote"):
        Explorer(host)


def test_listens_elsewhere_when_told_to() -> None:
    with Explorer("0.0.0.0", allow_remote=True) as server:
        assert server.answers_to("192.168.0.7:80")
        assert server.answers_to(socket.gethostname())
        assert not server.answers_to("attacker.example")


def test_port_in_use(explorer: Explorer) -> None:
    with pytest.raises(OSError, match=f"cannot listen on port {explorer.server_port}.*--port 0"):
        Explorer(port=explorer.server_port)


def test_port_out_of_range() -> None:
    with pytest.raises(ValueError, match="port 70000: must be 0"):
        Explorer(port=70000)
