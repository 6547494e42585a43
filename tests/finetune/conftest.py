"""A tiny model with a tokenizer, and tiny tasks in the layout of --data-dir; nothing is downloaded."""

from __future__ import annotations

import json
import os
import random

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

GOOD = ["fine", "great", "lovely", "superb"]
BAD = ["bad", "dull", "poor", "weak"]
PLAIN = [f"word{i}" for i in range(40)]


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A folder with a BERT of two layers, dropout included."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("tiny") / "tinybert"
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "?", *GOOD, *BAD, *PLAIN]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    return str(folder)


def sentence(rng, positive):
    words = [*rng.choices(PLAIN, k=rng.randint(1, 9)), *rng.choices(GOOD if positive else BAD, k=4)]
    rng.shuffle(words)
    return " ".join(words)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory):
    """sst2 (a word decides), stsb (constant plus noise) and squad in the layout of --data-dir."""
    root, rng = tmp_path_factory.mktemp("data"), random.Random(0)
    for split, count in (("train", 192), ("dev", 64)):
        sst2 = root / "glue" / "sst2"
        sst2.mkdir(parents=True, exist_ok=True)
        rows = [f"{sentence(rng, i % 2)}\t{i % 2}" for i in range(count)]
        (sst2 / f"{split}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
        stsb = root / "glue" / "stsb"
        stsb.mkdir(exist_ok=True)
        rows = [f"{sentence(rng, 1)}\t{sentence(rng, i % 2)}\t{5 * (i % 2):.3f}" for i in range(count)]
        (stsb / f"{split}.tsv").write_text("\n".join(["sentence1\tsentence2\tlabel", *rows]) + "\n")
        squad = root / "squad"
        squad.mkdir(exist_ok=True)
        paragraphs = []
        for i in range(count):
            words = rng.choices(PLAIN, k=60)
            at = rng.randrange(60)
            words[at] = rng.choice(GOOD)
            context = " ".join(words)
            answer = {"text": words[at], "answer_start": context.index(words[at])}
            qas = [{"id": str(i), "question": "what is fine ?", "answers": [answer]}]
            paragraphs.append({"context": context, "qas": qas})
        (squad / f"{split}.json").write_text(json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]}))
    return root
