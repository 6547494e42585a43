"""Tiny random models of every supported architecture; nothing is downloaded."""

from __future__ import annotations

import torch
import transformers

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
ENCODERS = ("bert", "roberta", "distilbert", "mpnet")
DECODERS = ("gpt2", "llama")


def build(name: str, **options):
    t = transformers
    torch.manual_seed(0)
    match name:
        case "bert":
            model = t.BertModel(t.BertConfig(**SMALL, **options))
        case "roberta":
            model = t.RobertaModel(t.RobertaConfig(**SMALL, **options))
        case "mpnet":
            model = t.MPNetModel(t.MPNetConfig(**SMALL, **options))
        case "distilbert":
            small = {"vocab_size": 97, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}
            model = t.DistilBertModel(t.DistilBertConfig(**small, max_position_embeddings=64, **options))
        case "gpt2":
            small = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
            model = t.GPT2LMHeadModel(t.GPT2Config(**small, bos_token_id=1, eos_token_id=2, **options))
        case "llama":
            model = t.LlamaForCausalLM(t.LlamaConfig(**SMALL, num_key_value_heads=2, **options))
        case "vit":
            small = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")}
            model = t.ViTModel(t.ViTConfig(**small, image_size=32, patch_size=8, **options))
        case "deberta":
            model = t.DebertaV2Model(t.DebertaV2Config(**SMALL, **options))
    # Random weights of the usual size make scores of almost nothing; these make real rows.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(10)
    return model.eval()
