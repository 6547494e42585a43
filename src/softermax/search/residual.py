"""What is left when terms have been counted: a Gaussian process over features, in NumPy.

It predicts the logarithm of measured over counted, near zero far from anything that was measured. What a mapper finds in one spec it
may not find in the next, so the kernel is a rough one (Matérn 3/2). Each feature has a length of its own, found where the
measurements are most likely (type-II maximum likelihood, with weak priors); that needs SciPy and happens when the model is
fitted (`softermax.search.fit`), not when it predicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softermax.extras import need

Floats = NDArray[np.float64]

_LENGTH, _SIZE, _NOISE = np.log(4.0), np.log(0.12), np.log(0.03)
"""Where the priors of the logarithms lie: lengths in standard deviations of a feature, residuals as shares."""
_SPREAD = (1.0, 0.7, 0.5)


@dataclass(frozen=True)
class Residual:
    """A fitted process."""

    middle: Floats
    scale: Floats
    at: Floats
    """(samples, features), standardised."""
    weights: Floats
    """(features), one over the square of each length."""
    solved: Floats
    """(samples), times the kernel: the prediction."""

    def __call__(self, features: Sequence[float]) -> float:
        x = (np.asarray(features, np.float64) - self.middle) / self.scale
        return float(_near(((x - self.at) ** 2) @ self.weights) @ self.solved)

    def to_dict(self) -> dict[str, Any]:
        return {name: _rounded(value) for name, value in vars(self).items()}

    @classmethod
    def of_dict(cls, values: Mapping[str, Any]) -> Residual:
        return cls(**{name: np.array(values[name], np.float64) for name in cls.__dataclass_fields__})


def fitted(features: Floats, wanted: Floats, noise: Floats) -> Residual:
    """``noise`` says how much less than the others each sample is to be trusted."""
    optimize = need("scipy.optimize", "search")
    middle, scale = features.mean(0), features.std(0)
    scale[scale < 1e-9] = 1.0
    at = (features - middle) / scale
    squares = (at[:, None] - at[None]) ** 2
    count = at.shape[1]
    start = np.array([*[_LENGTH] * count, _SIZE, _NOISE])
    spread = np.array([*[_SPREAD[0]] * count, *_SPREAD[1:]])
    arguments = (squares, wanted, noise**2, start, spread)
    near = list(zip(start - 3 * spread, start + 3 * spread, strict=True))
    found = optimize.minimize(
        _unlikely, start, arguments, jac=True, method="L-BFGS-B", bounds=near, options={"maxiter": 40}
    ).x
    weights = np.exp(-2 * found[:count])
    size, least = np.exp(2 * found[count:])
    kernel = size * _near(squares @ weights)
    return Residual(
        middle, scale, at, weights, size * np.linalg.solve(kernel + np.diag(least * noise**2), wanted)
    )


def _near(far: Floats) -> Floats:
    """The kernel of squares of distances: Matérn's, which is once differentiable."""
    distance = np.sqrt(3 * far)
    found: Floats = (1 + distance) * np.exp(-distance)
    return found


def _unlikely(
    theta: Floats, squares: Floats, wanted: Floats, noise: Floats, start: Floats, spread: Floats
) -> tuple[float, Floats]:
    """Minus the logarithm of the likelihood and the priors, and its gradient."""
    count = squares.shape[-1]
    weights = np.exp(-2 * theta[:count])
    size, least = np.exp(2 * theta[count:])
    far = squares @ weights
    kernel = size * _near(far)
    inverse = np.linalg.inv(kernel + np.diag(least * noise))
    determinant = np.linalg.slogdet(kernel + np.diag(least * noise))[1]
    solved = inverse @ wanted
    slope = inverse - np.outer(solved, solved)
    z = (theta - start) / spread
    by_length = 3 * size * np.exp(-np.sqrt(3 * far)) * slope
    gradient = np.array(
        [
            *(0.5 * np.einsum("ij,ijk->k", by_length, squares) * weights),
            (slope * kernel).sum(),
            float((np.diag(slope) * least * noise).sum()),
        ]
    )
    return float(0.5 * (wanted @ solved + determinant + z @ z)), gradient + z / spread


def _rounded(values: Floats) -> Any:
    return [_rounded(value) if np.ndim(value) else float(f"{value:.6g}") for value in values]
