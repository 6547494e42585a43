"""Serve a model that classifier.py exported, on this machine only. Needs onnxruntime and tokenizers, no PyTorch.

python examples/serve.py out/classifier
curl -H 'Content-Type: application/json' -d '{"texts": ["A joy."]}' http://127.0.0.1:8000/classify
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

LABELS = ("negative", "positive")
MAX_BODY = 64 * 1024
MAX_TEXTS = 32


class Classifier:
    """Texts to labels, through onnxruntime's 8-bit kernels."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(128)
        self.tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        # Without it, processors that lack VNNI add 8-bit products in 16 bits, which saturate.
        options.add_session_config_entry("session.x64quantprecision", "1")
        model = str(folder / "model.onnx")
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.inputs = [one.name for one in self.session.get_inputs()]

    def __call__(self, texts: list[str]) -> list[dict[str, Any]]:
        encoded = self.tokenizer.encode_batch(texts)
        fields = {
            "input_ids": [one.ids for one in encoded],
            "attention_mask": [one.attention_mask for one in encoded],
            "token_type_ids": [one.type_ids for one in encoded],
        }
        feed = {name: np.array(fields[name], dtype=np.int64) for name in self.inputs}
        logits = self.session.run(None, feed)[0].astype(np.float64)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares = weights / weights.sum(axis=1, keepdims=True)
        return [{"label": LABELS[int(row.argmax())], "probability": float(row.max())} for row in shares]


class Handler(BaseHTTPRequestHandler):
    classifier: Classifier

    def do_POST(self) -> None:
        try:
            if self.path != "/classify":
                return self.answer(404, {"error": f"{self.path}: the only path is /classify"})
            if self.headers.get_content_type() != "application/json":
                return self.answer(415, {"error": "Content-Type must be application/json"})
            length = int(self.headers.get("Content-Length") or 0)
            if length > MAX_BODY:
                return self.answer(413, {"error": f"{length} bytes: must be at most {MAX_BODY}"})
            texts = json.loads(self.rfile.read(length))["texts"]
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise ValueError
            if not 1 <= len(texts) <= MAX_TEXTS:
                return self.answer(400, {"error": f"{len(texts)} texts: must be 1 to {MAX_TEXTS}"})
        except (ValueError, KeyError, TypeError):
            return self.answer(400, {"error": 'expected {"texts": ["...", "..."]}'})
        self.answer(200, {"results": self.classifier(texts)})

    def answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="what classifier.py wrote")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    args = parser.parse_args()
    Handler.classifier = Classifier(args.folder)
    with ThreadingHTTPServer(("127.0.0.1", args.port), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/classify", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")


if __name__ == "__main__":
    main()
