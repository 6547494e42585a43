"""The native core: int8 and float rows, the training pair and fused attention, in C++ for the CPU at hand.

>>> from softermax import PRESETS, kernels
>>> kernels.supports(PRESETS["paper"])
True
>>> kernels.supports(PRESETS["paper"].replace(output="Q(1,12)"))
False

``SOFTERMAX_ISA`` set to avx512, avx2, neon or scalar forces a path; ``none`` turns the core off.
"""

from __future__ import annotations

from softermax.kernels.core import ISAS, available, isa, status, usable
from softermax.kernels.plan import refusal, supports
from softermax.kernels.rows import softermax_float, softermax_int8
from softermax.kernels.verification import bodies

__all__ = [
    "ISAS",
    "available",
    "bodies",
    "isa",
    "refusal",
    "softermax_float",
    "softermax_int8",
    "status",
    "supports",
    "usable",
]
