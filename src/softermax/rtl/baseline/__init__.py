"""The FP16 softmax units that Softermax is measured against.

`unnormed` and `normalization` are the paper's baseline, two passes over a row; `online` is a second,
stronger one with a single pass. `model` is their golden model. docs/baseline.md has the assumptions.
"""
