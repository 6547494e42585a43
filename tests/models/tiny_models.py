"""Tiny random models of many architectures; nothing is downloaded."""

from __future__ import annotations

import torch
import transformers as t

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_GROUPED = SMALL | {"num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_WINDOW = _GROUPED | {"sliding_window": 8}
_GPT = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_T5 = {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_BART = {
    "vocab_size": 97, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
}  # fmt: skip
_IMAGE = {k: v for k, v in SMALL.items() if k not in ("vocab_size", "max_position_embeddings")} | {
    "image_size": 32,
    "patch_size": 8,
}
_TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
_MODELS = {
    "aimv2": (t.Aimv2VisionModel, _IMAGE),
    "bart": (t.BartModel, _BART),
    "bert": (t.BertModel, SMALL),
    "bigbird_pegasus": (t.BigBirdPegasusModel, _BART),
    "bloom": (t.BloomForCausalLM, {"vocab_size": 97, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "deberta": (t.DebertaV2Model, SMALL),
    "distilbert": (
        t.DistilBertModel,
        {"vocab_size": 97, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64},
    ),
    "falcon": (t.FalconForCausalLM, {k: v for k, v in SMALL.items() if k != "intermediate_size"}),
    "gemma2": (t.Gemma2ForCausalLM, _WINDOW | {"head_dim": 8}),
    "gemma3": (t.Gemma3ForCausalLM, _WINDOW | {"head_dim": 8}),
    "gpt2": (t.GPT2LMHeadModel, _GPT | _TOKENS),
    "gptj": (t.GPTJForCausalLM, _GPT | _TOKENS | {"rotary_dim": 4}),
    "gpt_oss": (t.GptOssForCausalLM, _WINDOW | {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "llama": (t.LlamaForCausalLM, _GROUPED),
    "longt5": (t.LongT5Model, _T5),
    "mamba": (t.MambaForCausalLM, {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
    "mistral": (t.MistralForCausalLM, _WINDOW),
    "mixtral": (t.MixtralForCausalLM, _GROUPED | {"num_local_experts": 2}),
    "modernbert": (
        t.ModernBertModel,
        SMALL | _TOKENS | {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "local_attention": 8},
    ),
    "mpnet": (t.MPNetModel, SMALL),
    "mpt": (t.MptForCausalLM, {"vocab_size": 97, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    "neox": (t.GPTNeoXModel, SMALL),
    "pegasus_x": (t.PegasusXModel, _BART),
    "phi3": (t.Phi3ForCausalLM, _WINDOW),
    "qwen2": (t.Qwen2ForCausalLM, _WINDOW | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen3": (t.Qwen3ForCausalLM, _GROUPED | {"head_dim": 8}),
    "roberta": (t.RobertaModel, SMALL),
    "roformer": (t.RoFormerModel, SMALL),
    "siglip": (t.SiglipVisionModel, _IMAGE),
    "t5": (t.T5Model, _T5),
    "t5_encoder": (t.T5EncoderModel, _T5),
    "vit": (t.ViTModel, _IMAGE),
}  # fmt: skip
ENCODERS = ("bert", "roberta", "distilbert", "mpnet")
DECODERS = ("gpt2", "llama")
COVERED = (*ENCODERS, *DECODERS, "bart", "mistral", "mixtral", "modernbert", "t5", "vit")
REFUSED = ("bloom", "deberta", "falcon", "gptj", "mpt", "roformer")
"""Compute their attention in line, all of it."""
PARTLY = ("aimv2", "bigbird_pegasus", "longt5", "pegasus_x", "siglip")
"""Compute some of their attention in line."""
BY_ARGUMENT = ("gemma2", "gpt_oss")
"""Pass an argument that Softermax does not handle: a soft cap, sinks."""


def build(name: str, **options):
    made, small = _MODELS[name]
    torch.manual_seed(0)
    return sharpened(made(made.config_class(**small | options)))


def sharpened(model):
    """Random weights of the usual size make scores of almost nothing; these make real rows."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(10)
    return model.eval()


def encoder_decoder(encoder: str, decoder: str):
    """An encoder of one architecture and a decoder of another, by their names in transformers."""
    torch.manual_seed(0)
    parts = [t.AutoConfig.for_model(name, **SMALL) for name in (encoder, decoder)]
    config = t.EncoderDecoderConfig.from_encoder_decoder_configs(
        *parts, decoder_start_token_id=1, pad_token_id=0
    )
    return sharpened(t.EncoderDecoderModel(config))


def some_inputs(model):
    """What a model's forward takes: tokens with padding, decoder tokens, or an image."""
    generator = torch.Generator().manual_seed(1)
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=generator)}
    ids = torch.randint(5, 97, (3, 21), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, 13:] = 0
    mask[1, 18:] = 0
    made = {"input_ids": ids, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        made["decoder_input_ids"] = ids[:, :9]
    return made
