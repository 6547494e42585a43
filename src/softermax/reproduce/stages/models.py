"""The model stages: a pretrained model with Softermax in it, fine-tuning, the accuracy table, perplexity."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

from softermax import cache
from softermax.files import write_text
from softermax.progress import Progress, within
from softermax.reproduce.stage import Settings

SOURCES = ("reproduce.stages.models", "golden", "functional", "pytorch/", "kernels/", "models/")
TRAINING_SOURCES = (*SOURCES, "finetune/")
VARIANTS = ("paper", "paper+fold", "row-scaled", "row-scaled+fold")
_BATCH = 32
_NEIGHBOURS = 50


def drop_in(settings: Settings, progress: Progress) -> dict[str, Any]:
    """A model's attention and sentence embeddings with each variant beside those with the exact softmax."""
    _begin()
    import torch

    from softermax.models.pretrained import movie_reviews, plain_text
    from softermax.models.statistics import load_exact

    tokenizer, model = load_exact(settings["model"])
    texts = [text for text, _ in itertools.islice(movie_reviews("rotten_tomatoes"), settings["sentences"])]
    ordered = sorted(texts, key=len)
    sentences = [
        dict(tokenizer(ordered[n : n + _BATCH], padding=True, truncation=True, return_tensors="pt"))
        for n in range(0, len(ordered), _BATCH)
    ]
    length, count = settings["length"], settings["passages"]
    ids = tokenizer(
        plain_text(characters=8 * length * (count + 1)),
        add_special_tokens=False, return_tensors="pt", verbose=False,
    )["input_ids"][0][: length * count]  # fmt: skip
    passages = [
        {"input_ids": piece[None], "attention_mask": torch.ones_like(piece)[None]}
        for piece in ids.split(length)
    ]
    kinds = {"sentences": sentences, f"passages of {length} tokens": passages}
    rows: list[dict[str, Any]] = []
    for number, (kind, batches) in enumerate(kinds.items()):
        rows += compare_variants(model, kind, batches, within(progress, number, len(kinds)))
    return {"model": settings["model"], "rows": rows, "source": "movie reviews from PyPI"}


def compare_variants(
    model: Any, kind: str, batches: list[dict[str, Any]], progress: Progress
) -> list[dict[str, Any]]:
    import torch

    from softermax.functional import softermax
    from softermax.models.attention import Attended, observe
    from softermax.models.drop_in import enable, use_softmax
    from softermax.spec import get_rows_spec

    far: dict[str, list[Any]] = {name: [] for name in VARIANTS}
    sums: dict[str, list[Any]] = {name: [] for name in VARIANTS}

    def see(call: Attended) -> None:
        """Rows of attention: how far each variant's lies from the exact one, for the same scores."""
        keep = torch.ones_like(call.scores, dtype=torch.bool) if call.mask is None else call.mask
        for name in VARIANTS:
            ours = softermax(call.scores, mask=call.mask, spec=get_rows_spec(name, "the stage drop-in"))
            rows = ((ours - call.probabilities) * keep).abs().sum(-1) / 2
            real = keep.expand(call.scores.shape).any(-1)
            far[name].append(rows[real])
            sums[name].append((ours * keep).sum(-1)[real])

    steps = 1 + len(VARIANTS)
    progress(0, steps, f"{kind}, exact softmax")
    use_softmax(model)
    with torch.no_grad(), observe(see):
        exact = _embed(model, batches)
    found = []
    for done, name in enumerate(VARIANTS, 1):
        progress(done, steps, f"{kind}, {name}")
        enable(model, name)
        with torch.no_grad():
            ours = _embed(model, batches)
        alike = torch.nn.functional.cosine_similarity(ours, exact)
        found.append(
            {
                "text": kind,
                "rows": len(exact),
                "spec": name,
                "cosine": float(alike.mean()),
                "cosine_low": float(alike.min()),
                # Among a handful of texts a neighbour says nothing.
                "same_neighbour": float((_nearest(ours) == _nearest(exact)).float().mean())
                if len(exact) >= _NEIGHBOURS
                else None,
                "attention_moved": float(torch.cat(far[name]).mean()),
                "row_sum": float(torch.cat(sums[name]).mean()),
            }
        )
    return found


def _embed(model: Any, batches: list[dict[str, Any]]) -> Any:
    """A vector per text: the mean of its tokens' last states, as this model's embeddings are made."""
    import torch

    vectors = []
    for batch in batches:
        states = model(**batch).last_hidden_state
        weight = batch["attention_mask"][..., None].to(states.dtype)
        vectors.append((states * weight).sum(1) / weight.sum(1))
    return torch.cat(vectors)


def _nearest(vectors: Any) -> Any:
    import torch

    unit = torch.nn.functional.normalize(vectors, dim=-1)
    return (unit @ unit.T).fill_diagonal_(-2).argmax(-1)


def finetune(settings: Settings, progress: Progress) -> dict[str, Any]:
    """Movie reviews: one stage in fp32, then every arm from there. A finished arm is kept, an interrupted one goes on."""
    _begin()
    from softermax.finetune import recipe

    changes = {k: v for k, v in settings.items() if k != "fresh"}
    runs = recipe.planned(["movies"], **changes)
    return _table(runs, _folder("finetune", settings), None, progress)


def accuracy(settings: Settings, progress: Progress) -> dict[str, Any]:
    """The paper's nine tasks, as `softermax accuracy` has them."""
    _begin(offline=False)
    from softermax.finetune import recipe

    runs = recipe.planned(list(recipe.TWO_STAGE), model=settings["model"], recipe="two-stage")
    return _table(runs, _folder("accuracy", settings), settings.get("data_dir"), progress)


def _folder(stage: str, settings: Settings) -> Path:
    """Where the parts of a long stage are kept until all are there; other code or settings, another folder."""
    values = {k: v for k, v in settings.items() if k != "fresh"}
    key = cache.key(json.dumps(values, sort_keys=True), sources=TRAINING_SOURCES)
    folder = cache.cache_dir("reproduce", stage, key)
    if settings.get("fresh"):
        shutil.rmtree(folder)
    return folder


def _table(runs: Any, folder: Path, data_dir: str | None, progress: Progress) -> dict[str, Any]:
    from softermax.finetune import cells, table

    trainings = len(runs) + len({run.first_run.cell for run in runs if run.first})
    at = sum(cells.is_done(run, folder) for run in runs)
    last, arm = 0, ""

    def announce(number: int, count: int, run: Any) -> None:
        nonlocal at, last, arm
        at, last, arm = at + (number > 0), 0, f"{run.task}, {run.arm}"
        progress(at, trainings, arm)

    def report(done: int, total: int, note: str = "") -> None:
        nonlocal at, last
        # A first stage ends without a word: the arm's own steps begin anew.
        at, last = at + (done < last), done
        said = f"{arm}, step {done} of {total}" + (f", {note}" if note else "")
        # The predictions after the last step take about a tenth of the time.
        within(progress, at, trainings)(9 * done, 10 * total, said)

    cells.fill(runs, folder, data_dir, announce, report)
    wanted = {run.cell for run in runs}
    done = [cell for cell in cells.gather(folder) if cell.run.cell in wanted]
    return {
        "entries": [dataclasses.asdict(entry) for entry in table.entries(done)],
        "differences": [dataclasses.asdict(d) for d in table.differences(done, data_dir)],
        "swaps": table.swaps(done),
        "first_stages": [dataclasses.asdict(f) for f in table.first_stages(cells.gather_first(folder))],
        "training_seconds": sum(cell.seconds for cell in done),
    }


def perplexity(settings: Settings, progress: Progress) -> dict[str, Any]:
    """Every figure is kept as it comes: an interrupted stage goes on with the next."""
    _begin()
    from softermax.models.perplexity import measure_perplexity

    path = _folder("perplexity", settings) / "rows.json"
    rows = measure_perplexity(
        settings["model"],
        None,
        "prose from PyPI",
        settings["tokens"],
        settings["contexts"],
        known=cache.look_up(path, lambda there: json.loads(there.read_text(encoding="utf-8"))) or [],
        keep=lambda rows: write_text(path, json.dumps(rows, indent=1) + "\n"),
        report=progress,
    )
    return {"rows": rows}


def _begin(offline: bool = True) -> None:
    """Nothing but what the package registries gave, unless data comes from the hub."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TQDM_DISABLE", "1")
    if offline:
        os.environ["HF_HUB_OFFLINE"] = "1"
    from softermax.extras import need

    need("torch", "torch")
    need("transformers", "transformers").utils.logging.set_verbosity_error()
