"""generate: text from a language model in int8 with Softermax."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from softermax.cli.output import markdown_table, print_json, print_table, progress, write_result
from softermax.cli.torch_setup import begin_torch, check_counts, check_model, check_out, check_threads
from softermax.files import read_text
from softermax.spec import get_spec

if TYPE_CHECKING:
    from softermax.cli import Commands

INT8, FP32 = "int8", "fp32"
CALIBRATION = (16, 128)
"""Sequences and tokens of prose."""
WINDOW = 512
"""Tokens of a window whose perplexity is measured."""
_PACKAGES = ("torch", "transformers")


def register(commands: Commands) -> None:
    command = commands.add(
        "generate",
        generate,
        "text from a language model in int8 with Softermax",
        [
            'generate "The capital of France is"',
            'generate "Once upon a time" --tokens 32 --compare --perplexity 4',
            'generate "Once upon a time" --exact',
        ],
    )
    command.add_argument("prompt", help="what the text begins with")
    command.add_argument(
        "--model",
        default="smollm2",
        help="smollm2 (from PyPI), or a Llama in a folder or on the hub (default: %(default)s)",
    )
    command.add_argument("--tokens", type=int, default=64, help="tokens to generate (default: %(default)s)")
    command.add_argument(
        "--spec",
        default="paper+fold:deferred",
        help="a preset, +fold for base e, :deferred (default: %(default)s)",
    )
    which = command.add_mutually_exclusive_group()
    which.add_argument(
        "--exact", action="store_true", help="the model in single precision with its own softmax instead"
    )
    which.add_argument("--compare", action="store_true", help="both, token by token in turn")
    command.add_argument(
        "--temperature", type=float, default=0.0, help="0 takes the likeliest token (default: 0)"
    )
    command.add_argument(
        "--seed", type=int, default=0, help="of what is drawn with a temperature (default: 0)"
    )
    command.add_argument(
        "--perplexity",
        type=int,
        metavar="N",
        help=f"measure it too, on N windows of {WINDOW} tokens of --text",
    )
    command.add_argument("--text", help="a UTF-8 text file for --perplexity (default: prose from PyPI)")
    command.add_argument(
        "--out", metavar="FOLDER", help="write the result and its page, generate.json and .md"
    )
    command.add_argument("--threads", type=int, help="CPU threads (default: all)")


def generate(args: argparse.Namespace) -> int:
    check_counts(args, "tokens", "perplexity")
    check_threads(args)
    check_out(args.out)
    check_model(args.model)
    get_spec(args.spec)
    if not args.prompt:
        raise ValueError("PROMPT is empty: give the text that is to be continued")
    if not 0 <= args.temperature < math.inf:
        raise ValueError(f"--temperature {args.temperature}: must be 0 or more")
    prose = read_text(args.text) if args.text else None
    torch = begin_torch(args, timed=True)
    from transformers import AutoModelForCausalLM

    from softermax.models.generation import generate_in_turn
    from softermax.models.pretrained import load_network

    with progress("generate", args.quiet) as step:
        step(0, args.tokens, "loaded and calibrated")
        tokenizer, network = load_network(args.model, AutoModelForCausalLM)
        models = {} if args.exact else {INT8: _deployed(tokenizer, network, args.spec)}
        models |= {FP32: network} if args.exact or args.compare else {}
        prompt = tokenizer(args.prompt, return_tensors="pt")["input_ids"][0]
        made = generate_in_turn(
            models, prompt, args.tokens, args.temperature, args.seed, tokenizer.eos_token_id, step
        )
        perplexities = _perplexities(args, tokenizer, models, prose) if args.perplexity else {}
    rows: list[dict[str, Any]] = []
    for name, one in made.items():
        speed = one.tokens_per_second
        rows.append(
            {"model": args.model, "arithmetic": name, "spec": args.spec if name == INT8 else "exact"}
            | {"prompt": one.prompt_tokens, "tokens": len(one.tokens), "threads": torch.get_num_threads()}
            | {
                "tokens/s": speed and round(speed, 1),
                "prompt tokens/s": round(one.prompt_tokens_per_second, 1),
            }
            | {"weights MB": round(one.weight_bytes / 1e6, 1), "cache MB": round(one.cache_bytes / 1e6, 3)}
            | ({"perplexity": round(perplexities[name], 3)} if perplexities else {})
            | {"text": tokenizer.decode(one.tokens, skip_special_tokens=True)}
        )
    shown = [{k: v for k, v in row.items() if k != "text"} for row in rows]
    if args.out:
        page = f"# Text from int8\n\nPrompt: {args.prompt}\n\n{markdown_table(shown)}"
        write_result(args, "generate", rows, page, _PACKAGES, {"perplexity text": args.text and "given"})
    if args.json:
        print_json(rows)
        return 0
    for row in rows:
        print(f"{row['arithmetic']}: {args.prompt}{row['text']}\n")
    if not args.quiet:
        print_table(shown)
    return 0


def _deployed(tokenizer: Any, network: Any, spec: str) -> Any:
    from softermax.models.deployment import deploy
    from softermax.models.pretrained import plain_text

    sequences, length = CALIBRATION
    ids = tokenizer(plain_text(16 * sequences * length), return_tensors="pt", verbose=False)["input_ids"][0]
    batches = [{"input_ids": ids[None, n * length : (n + 1) * length]} for n in range(sequences)]
    return deploy(network, spec, batches)


def _perplexities(
    args: argparse.Namespace, tokenizer: Any, models: dict[str, Any], prose: str | None
) -> dict[str, float]:
    """Of each model, on the same windows."""
    import numpy as np

    from softermax.models.perplexity import losses, windows
    from softermax.models.pretrained import plain_text

    text = prose if prose is not None else plain_text(16 * args.perplexity * WINDOW)
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt", verbose=False)["input_ids"][0]
    pieces = windows(ids, WINDOW, args.perplexity)
    return {name: math.exp(np.mean(losses(model, pieces))) for name, model in models.items()}
