"""Triton kernels: Softermax on GPUs, with the golden model's bits.

They need the extra ``gpu``. Importing `softermax.functional` registers them for tensors of a GPU; nothing here imports Triton
before the first such tensor comes.
"""

from __future__ import annotations

import importlib.util

from softermax.gpu.interpreter import asked, prepare, turned_off


def installed() -> bool:
    """Whether Triton is."""
    return importlib.util.find_spec("triton") is not None


prepare()


def register() -> None:
    """Give the operators their kernels for GPUs, where PyTorch has any, or for the interpreter if that is asked for."""
    import torch

    if asked():
        device, key = "cpu", "CPU"
    elif installed() and not turned_off() and (torch.version.cuda or torch.version.hip):
        device, key = "cuda", "CUDA"  # PyTorch's name for AMD's too
    else:
        return
    from softermax.gpu.operators import register_for

    register_for(device, key)
