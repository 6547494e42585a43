"""Attention of a real model on real text, as a file: scores for activity and verification, operands for P·V.

    python -m softermax.models.record OUT.npz

runs the packaged MiniLM on sequences of 384 tokens of prose and writes

- ``scores`` (rows, 384) int8, the raw Q(6,2) words of rows picked evenly from all layers, heads and
  queries, and ``scores_float`` (rows, 384) float32, what they were made from;
- ``layer``, ``head``, ``query`` (rows), where each row comes from;
- ``q``, ``k``, ``v`` (384, head width) int8 and ``q_scale``, ``k_scale``, ``v_scale``: the operands of one
  head, an integer times its scale being the float value.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softermax.extras import need

if not TYPE_CHECKING:
    need("torch", "torch")
    need("transformers", "transformers")

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from softermax import golden
from softermax.files import replacing
from softermax.models.drop_in import Attended, observe
from softermax.models.masks import rows_spec
from softermax.models.pretrained import plain_text
from softermax.models.statistics import load_exact
from softermax.spec import get_spec

LENGTH = 384


def record(
    out: str | Path,
    rows: int = 2304,
    model: str = "minilm",
    text: str | None = None,
    spec: str = "paper",
    layer: int = 2,
    head: int = 0,
) -> dict[str, NDArray[np.generic]]:
    """Run the model and write the file; also returns what it wrote."""
    if rows < 1:
        raise ValueError(f"rows = {rows}: must be 1 or more")
    words = rows_spec(get_spec(spec))
    tokenizer, network = load_exact(model)
    layers, heads = network.config.num_hidden_layers, network.config.num_attention_heads
    for name, value, count in (("layer", layer, layers), ("head", head, heads)):
        if not 0 <= value < count:
            raise ValueError(f"{name} = {value}: {model} has {name}s 0 to {count - 1}")
    sequences = -(-rows // (layers * heads * LENGTH))
    ids = _sequences(tokenizer, text, sequences)

    seen: list[Attended] = []
    with torch.no_grad(), observe(seen.append):
        network(input_ids=ids)
    scores = torch.stack([a.scores for a in seen], dim=1).reshape(-1, LENGTH)  # batch, layer, head, query
    picked = np.linspace(0, len(scores) - 1, rows).astype(np.int64)
    chosen = scores[torch.from_numpy(picked)].numpy()
    result: dict[str, NDArray[np.generic]] = {
        "scores": golden.quantize(chosen, words).astype(np.int8 if words.input.bits <= 8 else np.int32),
        "scores_float": chosen,
        "layer": (picked // (heads * LENGTH) % layers).astype(np.int16),
        "head": (picked // LENGTH % heads).astype(np.int16),
        "query": (picked % LENGTH).astype(np.int16),
    }
    operands = {"q": seen[layer].query, "k": seen[layer].key, "v": seen[layer].value}
    for name, tensor in operands.items():
        result[name], result[f"{name}_scale"] = _int8(tensor[0, head])
    with replacing(out) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **result)  # type: ignore[arg-type]
    return result


def _sequences(tokenizer: Any, text: str | None, count: int) -> Tensor:
    """``count`` rows of exactly ``LENGTH`` tokens, each with the model's own first and last token."""
    prose = text if text is not None else plain_text(characters=8 * LENGTH * (count + 1))
    inner = LENGTH - 2
    ids = tokenizer(prose, add_special_tokens=False)["input_ids"]
    if len(ids) < count * inner:
        raise ValueError(f"the text has {len(ids)} tokens; {count} sequences need {count * inner}")
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    return torch.tensor([[first, *ids[n * inner : (n + 1) * inner], last] for n in range(count)])


def _int8(values: Tensor) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    scale = values.abs().max() / 127
    return (values / scale).round().to(torch.int8).numpy(), scale.numpy().astype(np.float32)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m softermax.models.record", description="attention of a real model, as a file"
    )
    parser.add_argument("out", help="the .npz file to write")
    parser.add_argument("--rows", type=int, default=2304, help="rows of scores (default: %(default)s)")
    parser.add_argument("--model", default="minilm", help="packaged model, folder or hub name")
    parser.add_argument("--text", help="a UTF-8 text file (default: prose from PyPI)")
    parser.add_argument("--spec", default="paper", help="how scores become words (default: %(default)s)")
    parser.add_argument("--layer", type=int, default=2, help="layer of the operands (default: %(default)s)")
    parser.add_argument("--head", type=int, default=0, help="head of the operands (default: %(default)s)")
    args = parser.parse_args(argv)
    try:
        text = Path(args.text).read_text(encoding="utf-8") if args.text else None
        result = record(args.out, args.rows, args.model, text, args.spec, args.layer, args.head)
    except (ValueError, OSError, ImportError) as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: " + ", ".join(f"{name} {array.shape}" for name, array in result.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
