"""The best Softermax for a model, a row length and a budget: `softermax search`.

``space`` says what may be chosen, ``objectives`` what it is judged by, ``silicon_model`` predicts area and energy,
``engine`` draws and judges, ``executor`` does the work in processes or on a Ray cluster, ``front`` is what comes out.
"""
