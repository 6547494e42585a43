"""The explorer's server: who it answers, and what it refuses."""

import dataclasses
import http.client
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from softermax.cache import cache_dir
from softermax.explorer import server as server_module
from softermax.explorer import verilog as verilog_module
from softermax.explorer.rivals import built_points
from softermax.explorer.server import MAX_BODY, Explorer, is_loopback
from softermax.files import write_text
from softermax.silicon.flow import EnergyResult, Result
from softermax.spec import PRESETS, AnySpec, DeferredSpec, SoftermaxSpec, get_spec, spec_from_dict


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
    for path in (
        "/style.css",
        "/explorer.js",
        "/state.js",
        "/charts.js",
        "/front.js",
        "/steps.js",
        "/icon.svg",
    ):
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


def test_answers_a_row_of_deferred_normalisation(explorer: Explorer) -> None:
    spec = get_spec("paper+fold:deferred")
    status, answer, _ = ask(explorer, body=json.dumps({"scores": [2, 1, 3], "spec": spec.to_dict()}))
    assert status == 200
    assert answer["value"] == spec.compute([2.0, 1.0, 3.0]).tolist()


def test_presets_have_their_deferred_forms(explorer: Explorer) -> None:
    status, presets, _ = ask(explorer, "/api/presets")
    assert status == 200
    assert presets.keys() > PRESETS.keys()
    for name, values in presets.items():
        assert spec_from_dict(values) == get_spec(name)
    assert spec_from_dict(presets["paper:deferred"]) == DeferredSpec()


def test_a_spec_is_completed_or_refused(explorer: Explorer) -> None:
    status, answer, _ = ask(explorer, "/api/spec", body='{"spec": {"scores": {"base": "fold"}}}')
    assert (status, answer["spec"]) == (200, get_spec("paper+fold:deferred").to_dict())
    status, answer, _ = ask(explorer, "/api/spec", body='{"spec": {"scores": {"max": "Q(5,2)"}}}')
    assert (status, answer["field"]) == (200, "scores.max")
    assert answer["error"].startswith("scores.max = Q(5,2): needs at least 6 integer bits")
    assert ask(explorer, "/api/spec", body='{"spec": [1]}')[0] == 422


def result(spec: AnySpec, **changes: Any) -> str:
    """A result as `softermax silicon` keeps it."""
    energy = [
        EnergyResult("gaussian", "glitches", 0.9, {}, 0.5, 0.3, 0.1),
        EnergyResult("attention", "zero delay", 0.6, {}, 0.3, 0.2, 0.1),
        EnergyResult("attention", "glitches", 0.7, {}, 0.4, 0.2, 0.1),
    ]
    values: dict[str, Any] = {
        "unit": "unnormed", "design": "softermax", "preset": "own", "width": 16, "library": "nangate45",
        "clock_ns": 1.0, "wire": "small", "area_um2": 5000.0, "area_by_unit": {}, "cells": {},
        "slack_ns": 0.1, "critical_path": [], "words_equal": 1, "energy": energy, "spec": spec.to_dict(),
    }  # fmt: skip
    return json.dumps(dataclasses.asdict(Result(**values | changes)))


PAPER = SoftermaxSpec()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of results."""
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path))
    return cache_dir("silicon", "results")


def test_shows_area_and_energy_where_they_are_cached(explorer: Explorer, results: Path) -> None:
    assert ask(explorer, body='{"scores": [1]}')[1]["silicon"] == []
    for age, made in enumerate(
        (
            result(PAPER, area_um2=6000.0),
            result(PAPER),
            result(PAPER.replace(slice_width=8), area_um2=2500.0),
            result(PAPER, design="two-pass"),
            result(PAPER, unit="normalization", preset="paper+skip-zeros"),
            result(PAPER, wire="no wires", area_um2=4000.0),
        )
    ):
        write_text(results / f"{age}.json", made)
        os.utime(results / f"{age}.json", (age, age))
    found = ask(explorer, body='{"scores": [1], "spec": {"base": "fold"}}')[1]["silicon"]
    assert found == [
        {"unit": "unnormed", "library": "nangate45", "clock_ns": 1.0, "wire": wire, "area_um2": area,
         "slack_ns": 0.1, "pj_per_element": 0.7, "stimulus": "attention"}
        for wire, area in (("no wires", 4000.0), ("small", 5000.0))
    ]  # fmt: skip
    found = ask(explorer, body='{"scores": [1], "spec": {"slice_width": 8}}')[1]["silicon"]
    assert [figure["area_um2"] for figure in found] == [2500.0]
    assert ask(explorer, body='{"scores": [1], "spec": {"slice_width": 9}}')[1]["silicon"] == []


def test_finds_the_units_of_any_spec_by_what_they_are_made_of(explorer: Explorer, results: Path) -> None:
    own = PAPER.replace(input="Q(6,3)", output="Q(1,9)")
    deferred = DeferredSpec(scores=own)
    measured = {"unnormed": own, "normalization": own, "weights": deferred, "deferred tail": deferred}
    for unit, spec in measured.items():
        write_text(results / f"{unit}.json", result(spec, unit=unit))

    def units(spec: AnySpec) -> list[str]:
        body = json.dumps({"scores": [1], "spec": spec.to_dict()})
        return [figure["unit"] for figure in ask(explorer, body=body)[1]["silicon"]]

    assert units(own) == ["unnormed", "normalization"]
    assert units(own.replace(reciprocal_segments=8)) == ["unnormed"]
    assert units(own.replace(input="Q(6,4)")) == ["normalization"]
    assert units(deferred) == ["weights", "deferred tail"]
    assert units(deferred.replace(scores=own.replace(output="Q(1,7)"))) == ["weights", "deferred tail"]
    assert units(deferred.replace(reciprocal="Q(1,11)")) == ["weights"]
    assert units(deferred.replace(scores=PAPER)) == ["deferred tail"]
    assert units(PAPER) == []


@pytest.mark.parametrize(
    "broken", [b"", b"{", b"[1]", b"\xff", b"null", b'{"design": "softermax", "preset": "", "spec": {}}']
)
def test_a_broken_cached_result_is_named_and_left_out(
    explorer: Explorer, results: Path, broken: bytes
) -> None:
    write_text(results / "whole.json", result(PAPER))
    (results / "broken.json").write_bytes(broken)
    with pytest.warns(UserWarning, match=r"broken\.json in the cache cannot be read"):
        status, answer, _ = ask(explorer, body='{"scores": [1]}')
    assert status == 200
    assert [figure["area_um2"] for figure in answer["silicon"]] == [5000.0]


def test_a_cache_that_cannot_be_opened_leaves_the_figures_out(
    explorer: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SOFTERMAX_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="area and energy are not shown"):
        status, answer, _ = ask(explorer, body='{"scores": [1]}')
    assert (status, answer["silicon"]) == (200, [])


def test_a_fault_is_an_answer_too(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> list[dict[str, Any]]:
        raise RuntimeError("a wire is loose")

    monkeypatch.setattr(server_module, "figures", broken)
    status, answer, _ = ask(explorer, body='{"scores": [1]}')
    assert status == 500
    assert answer["error"] == "a fault of the explorer: a wire is loose"
    assert "RuntimeError: a wire is loose" in capfd.readouterr().err


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


@pytest.mark.parametrize("path", ["//[", "/api/compute?x=[", "/?a=//["])
def test_answers_odd_paths(explorer: Explorer, path: str) -> None:
    assert ask(explorer, path)[0] in (200, 404, 405)


def test_refuses_a_page_of_another_site(explorer: Explorer) -> None:
    body = '{"scores": [1]}'
    assert ask(explorer, body=body, Origin="https://attacker.example")[0] == 403
    assert ask(explorer, body=body, Origin="null")[0] == 403
    assert ask(explorer, body=body, Origin="http://[")[0] == 403
    assert ask(explorer, body=body, Origin="http://]/")[0] == 403
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


@contextmanager
def serving(**limits: int) -> Iterator[Explorer]:
    """An explorer of its own, with some limits changed."""
    kind = type("Limited", (Explorer,), limits)
    with kind() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


REQUEST = b"GET /icon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def everything(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_sixty_connections_at_once_are_all_answered() -> None:
    with ExitStack() as stack:
        server = stack.enter_context(Explorer())
        # All are made before the first is accepted, as in a burst.
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=10))
            for _ in range(60)
        ]
        for connection in connections:
            connection.sendall(REQUEST)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        answers = [everything(connection) for connection in connections]
        server.shutdown()
        thread.join()
    assert [answer.split(b"\r\n")[0] for answer in answers] == [b"HTTP/1.1 200 OK"] * 60


def test_connections_beyond_the_limit_wait_without_a_thread() -> None:
    with serving(max_connections=3) as server, ExitStack() as stack:
        before = threading.active_count()
        address = ("127.0.0.1", server.server_port)
        idle = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(8)]
        late = stack.enter_context(socket.create_connection(address, timeout=30))
        late.sendall(REQUEST)
        time.sleep(0.3)
        assert threading.active_count() - before == 3
        for connection in idle:
            connection.close()
        assert everything(late).startswith(b"HTTP/1.1 200 OK")


LARGE = SoftermaxSpec(
    input="Q(8,24)", max="Q(8,24)", unnormed="Q(1,31)", powsum="Q(16,16)", reciprocal="Q(1,31)", output="Q(1,31)",
    slice_width=64, pow2_segments=4096, reciprocal_segments=4096,
)  # type: ignore[arg-type] # fmt: skip


def test_a_unit_that_is_too_large_is_refused_and_blocks_nobody(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("amaranth", reason="Amaranth is not installed")
    pytest.importorskip("pyosys", reason="pyosys is not installed")
    started: list[subprocess.Popen[str]] = []

    class Recorded(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    monkeypatch.setattr(verilog_module, "SECONDS", 3.0)
    monkeypatch.setattr(verilog_module.subprocess, "Popen", Recorded)
    answers: list[tuple[int, Any, http.client.HTTPResponse]] = []
    body = json.dumps({"spec": LARGE.to_dict(), "unit": "top"})
    asking = threading.Thread(target=lambda: answers.append(ask(explorer, "/api/verilog", body=body)))
    asking.start()
    while not started:
        time.sleep(0.01)
    assert ask(explorer, body='{"scores": [1, 2]}')[0] == 200
    assert asking.is_alive()
    asking.join(30)
    [(status, answer, _)] = answers
    assert status == 422
    assert "too large: a unit of 64 lanes with tables of 4096 and 4096 segments" in answer["error"]
    assert "words of up to 32 bits was not made in 3 s" in answer["error"]
    with pytest.raises(ProcessLookupError):
        os.killpg(started[0].pid, 0)


def test_a_unit_is_not_waited_for_without_end(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("amaranth", reason="Amaranth is not installed")
    pytest.importorskip("pyosys", reason="pyosys is not installed")
    busy = threading.Lock()
    busy.acquire()
    monkeypatch.setattr(verilog_module, "_one_at_a_time", busy)
    monkeypatch.setattr(verilog_module, "SECONDS", 0.1)
    status, answer, _ = ask(explorer, "/api/verilog", body='{"unit": "top"}')
    assert (status, answer["error"]) == (503, "another unit is being made: try again later")


def test_units_of_both_kinds_of_spec_are_made(explorer: Explorer) -> None:
    pytest.importorskip("amaranth", reason="Amaranth is not installed")
    pytest.importorskip("pyosys", reason="pyosys is not installed")
    small = SoftermaxSpec(slice_width=1)
    body = json.dumps({"spec": DeferredSpec(scores=small).to_dict(), "unit": "deferred"})
    status, answer, _ = ask(explorer, "/api/verilog", body=body)
    assert (status, answer["name"]) == (200, "deferred_tail.v")
    assert "module deferred_tail (" in answer["text"]
    assert "deferred weight = Q(0,8)" in answer["text"]
    body = json.dumps({"spec": small.to_dict(), "unit": "deferred"})
    status, answer, _ = ask(explorer, "/api/verilog", body=body)
    assert (status, answer["field"]) == (422, "unit")
    assert ask(explorer, "/api/verilog", body='{"unit": ["top"]}')[0] == 422
    body = json.dumps({"spec": {"slice_width": None}, "unit": "top"})
    status, answer, _ = ask(explorer, "/api/verilog", body=body)
    assert (status, answer["field"]) == (200, "slice_width")


def test_designs_that_were_built_are_points_beside_the_rivals_names(explorer: Explorer) -> None:
    answer = ask(explorer, "/api/rivals")[1]
    assert "ita" in answer["names"]
    assert answer["points"] == []
    built = {"unit": "whole", "width": 16, "library": "nangate45", "pj_per_element": 1.5}
    rows = [
        {"name": name, "kind": kind, "area_um2": area, "l1_recorded": error} | built
        for name, kind, area, error in (
            ("ita", "rival", 10.0, 0.4),
            ("lean+fold", "ours", 12.0, 0.3),
            ("i-bert", "rival", 20.0, 0.5),
        )
    ]
    points = built_points(
        [*rows, rows[0] | {"width": 32}, {"name": "softex", "kind": "rival", "l1_recorded": 0.0}]
    )
    assert [(p["name"], p["front"], p["spec"]) for p in points] == [
        ("ita", True, "ita"), ("lean+fold", True, None), ("i-bert", False, "i-bert"),
    ]  # fmt: skip
    with Explorer(built=points) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            assert ask(server, "/api/rivals")[1]["points"] == points
        finally:
            server.shutdown()
            thread.join()


def test_a_page_without_a_search_has_no_points_and_one_with_it_has_them_all(explorer: Explorer) -> None:
    assert ask(explorer, "/api/front")[1] == {"points": []}
    point = {"name": "trial-3", "area": 1.0, "energy": 2.0, "l1": 0.1, "front": True, "trial": 3, "spec": {}}
    with Explorer(front=[point]) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            assert ask(server, "/api/front")[1] == {"points": [point]}
            assert ask(server, "/api/front", body="{}")[0] == 405
        finally:
            server.shutdown()
            thread.join()
