"""A softmax of generic IEEE half-precision components, as a component library gives them.

Every component is complete and knows nothing of its neighbours: signs, subnormal numbers, infinities and NaN in and out, round to
nearest even, a pipeline of its own. `model` is their golden model. docs/baseline.md has the assumptions.
"""
