"""Attention of a real model on real text, as a file: scores for activity and verification, operands for P·V.

    python -m softermax.models.record OUT.npz

runs the packaged MiniLM on sequences of 384 tokens of prose, or another model on as many as ``--length`` says, and writes

- ``scores`` (rows, length) int8, the raw Q(6,2) words of rows picked evenly from all layers, heads and
  queries, and ``scores_float`` (rows, length) float32, what they were made from;
- ``mask`` (rows, length), True where a key takes part: all of them unless the model is causal;
- ``layer``, ``head``, ``query`` (rows), where each row comes from;
- ``q``, ``k``, ``v`` (length, head width) int8 and ``q_scale``, ``k_scale``, ``v_scale``: the operands of one
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
    length: int = LENGTH,
) -> dict[str, NDArray[np.generic]]:
    """Run the model and write the file; also returns what it wrote."""
    if rows < 1 or length < 2:
        raise ValueError(f"rows = {rows}, length = {length}: must be 1 or more, 2 or more")
    words = rows_spec(get_spec(spec))
    tokenizer, network = load_exact(model)
    layers, heads = network.config.num_hidden_layers, network.config.num_attention_heads
    for name, value, count in (("layer", layer, layers), ("head", head, heads)):
        if not 0 <= value < count:
            raise ValueError(f"{name} = {value}: {model} has {name}s 0 to {count - 1}")
    longest = getattr(network.config, "max_position_embeddings", length)
    if length > longest:
        raise ValueError(f"length = {length}: {model} takes at most {longest} tokens")
    sequences = -(-rows // (layers * heads * length))
    # In the order of batch, layer, head, query.
    picked = np.linspace(0, sequences * layers * heads * length - 1, rows).astype(np.int64)
    sequence, of_layer = picked // (layers * heads * length), picked // (heads * length) % layers
    of_head, query = picked // length % heads, picked % length
    scores = np.zeros((rows, length), np.float32)
    mask = np.ones((rows, length), np.bool_)
    seen: list[Attended | None] = []

    def see(call: Attended) -> None:
        """Only what was picked is kept: the scores of all layers would not fit into memory."""
        here = np.flatnonzero(of_layer == len(seen))
        at = tuple(torch.from_numpy(part[here]) for part in (sequence, of_head, query))
        scores[here] = call.scores[at].float().numpy()
        if call.mask is not None:
            mask[here] = call.mask.expand(call.scores.shape)[at].numpy()
        seen.append(call if len(seen) == layer else None)

    with torch.no_grad(), observe(see):
        network(input_ids=_sequences(tokenizer, text, sequences, length))
    result: dict[str, NDArray[np.generic]] = {
        "scores": golden.quantize(scores, words, mask).astype(np.int8 if words.input.bits <= 8 else np.int32),
        "scores_float": scores,
        "mask": mask,
        "layer": of_layer.astype(np.int16),
        "head": of_head.astype(np.int16),
        "query": query.astype(np.int16),
    }
    call = seen[layer]
    assert call is not None
    operands = {"q": call.query, "k": call.key, "v": call.value}
    for name, tensor in operands.items():
        result[name], result[f"{name}_scale"] = _int8(tensor[0, head])
    with replacing(out) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **result)  # type: ignore[arg-type]
    return result


def _sequences(tokenizer: Any, text: str | None, count: int, length: int) -> Tensor:
    """``count`` rows of exactly ``length`` tokens, each with the model's own first and last token, if it has such."""
    prose = text if text is not None else plain_text(characters=8 * length * (count + 1))
    first, last = (
        [] if token is None else [token] for token in (tokenizer.cls_token_id, tokenizer.sep_token_id)
    )
    inner = length - len(first) - len(last)
    ids = tokenizer(prose, add_special_tokens=False, verbose=False)["input_ids"]
    if len(ids) < count * inner:
        raise ValueError(f"the text has {len(ids)} tokens; {count} sequences need {count * inner}")
    return torch.tensor([[*first, *ids[n * inner : (n + 1) * inner], *last] for n in range(count)])


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
    parser.add_argument(
        "--length", type=int, default=LENGTH, help="tokens of a sequence (default: %(default)s)"
    )
    parser.add_argument("--head", type=int, default=0, help="head of the operands (default: %(default)s)")
    args = parser.parse_args(argv)
    try:
        text = Path(args.text).read_text(encoding="utf-8") if args.text else None
        result = record(args.out, args.rows, args.model, text, args.spec, args.layer, args.head, args.length)
    except (ValueError, OSError, ImportError) as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: " + ", ".join(f"{name} {array.shape}" for name, array in result.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
