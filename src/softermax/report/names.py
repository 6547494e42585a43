"""What hardware is called where people read of it."""

from __future__ import annotations

UNITS = {"unnormed": "Unnormed Softmax unit", "normalization": "Normalization unit"}
LIBRARIES = {"nangate45": "45 nm (NanGate)", "asap7": "7 nm (ASAP7)"}
BASELINES = {"two-pass": "lean FP16", "generic": "generic IEEE components"}
"""The two kinds that ratios are judged against, both of two passes."""
SCHEMES = {
    "fixed": "fixed output",
    "row-scaled": "row-scaled output",
    "lean": "lean",
    "deferred": "deferred normalisation",
}
