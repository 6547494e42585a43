"""What hardware is called where people read of it."""

from __future__ import annotations

UNITS = {"unnormed": "Unnormed Softmax unit", "normalization": "Normalization unit"}
LIBRARIES = {"nangate45": "45 nm (NanGate)", "asap7": "7 nm (ASAP7)"}
SCHEMES = {
    "fixed": "fixed output",
    "row-scaled": "row-scaled output",
    "lean": "lean",
    "deferred": "deferred normalisation",
}
