"""I-BERT's IntSoftmax: a second-order polynomial on (-ln 2, 0], shifted; a 16-bit requantisation; one 32-bit division per row.

The authors' module runs on floats; its integers are these wherever single precision holds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softermax.rivals.designs.arrays import Array, divided_half_even
from softermax.rivals.designs.interface import About, Needs, Normalised

LN2 = 0.6931
"""As the authors write it."""
A, B, C = 0.35815147, 0.96963238, 1.0
"""a (r + b) r + c on (-ln 2, 0]: i-exp's coefficients."""
SHIFTS = 30
"""Powers of two that the exponential goes down before it is cut off."""
HIGHEST = 2**15 - 1
"""The 16-bit word of exp(0)."""


def polynomial(scale: float) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """i-exp of every distance below the max as a polynomial's value and the shift to the right, and the value at 0.

    The last distance is where the authors cut off: whatever is further has its value.
    """
    x0 = math.floor(-LN2 / scale)
    b, c = math.floor(B / A / scale), math.floor(C / A / scale**2)
    d = -np.arange(SHIFTS * -x0 + 1)
    shift = d // x0  # both are negative or zero
    r = d - shift * x0
    return np.maximum((r + b) * r + c, 0), shift, c


def dyadic(value: float) -> tuple[int, int]:
    """``value`` as m / 2^e with a 31-bit m, rounded half up."""
    mantissa, exponent = math.frexp(value)
    return math.floor(mantissa * 2**31 + 0.5), 31 - exponent


@dataclass(frozen=True)
class IBert(Normalised):
    """Kim et al., ICML 2021."""

    name: str = "i-bert"
    bits: int = 8
    """Of the output word."""

    about: About = About(
        title="I-BERT IntSoftmax",
        sources=(
            "Kim et al., I-BERT: Integer-only BERT Quantization, ICML 2021",
            "kssteven418/I-BERT@1b09c759 fairseq/quantization/utils/quant_modules.py",
            "transformers models/ibert/quant_modules.py",
        ),
        confidence="same bits as the authors' code",
        needs=Needs(multipliers=5),
        takes="int8 (int32 in the authors' models)",
        claims=(
            "RoBERTa-Base and -Large on GLUE, after QAT: as FP32 or slightly above",
            "T4 GPU, over FP32: 2.4x to 4.0x",
        ),
    )

    @property
    def gives(self) -> str:
        return f"u{self.bits}, p = y / {1 << self.bits}"

    @property
    def unit(self) -> int:
        return HIGHEST

    @property
    def lsb(self) -> float:
        return 2.0**-self.bits

    def exponentials(self) -> NDArray[np.int64]:
        value, shift, top = polynomial(self.step)
        if not 0 < top < 2**24:
            raise ValueError(
                f"{self.name}: scale = {self.step}: must be 0.00041 to 1.67, or exp(0) is 0 or outgrows single precision"
            )
        # The scale is the calibrated maximum's: every row has exp(0), so the moving average of maxima is exp(0) too.
        m, e = dyadic(HIGHEST / top)
        return np.asarray(
            np.clip(divided_half_even(value * m, np.int64(1) << np.minimum(e + shift, 60)), 0, HIGHEST),
            dtype=np.int64,
        )

    def normalize(self, e: Array, total: Array) -> Array:
        return e * (2**32 // total) >> (32 - self.bits)


DESIGNS = (IBert(),)
