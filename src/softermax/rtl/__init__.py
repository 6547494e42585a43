"""The paper's units in Amaranth, bit-exact with the golden model, as streaming components.

==================  ====================================================  ==========================
file                component                                             ports
==================  ====================================================  ==========================
int_max             ``IntMax(spec, rows)``                                wires and an enable
power_of_two        ``PowerOfTwo(spec, lanes)``                           wires and an enable
reduction           ``Reduction(spec, rows)``                             wires and enables
unnormed_softmax    ``UnnormedSoftmax(spec, rows=1)``                     ``slices`` in; ``unnormed``,
                                                                          ``sums`` out
normalization       ``Normalization(spec, lanes, rows=1)``                ``finished``, ``slices`` in;
                                                                          ``probabilities`` out
unnormed_sum        ``UnnormedSum(spec, rows=1)``                         ``slices`` in; ``finished`` out
product_...         ``ProductNormalization(spec, lanes, rows=1)``         ``finished``, ``slices`` in;
  normalization                                                           ``probabilities`` out
slice_buffer        ``SliceBuffer(spec, rows, depth)``                    ``unnormed``, ``sums`` in;
                                                                          ``finished``, ``slices`` out
softermax_top       ``Softermax(spec, rows=2, depth=32)``                 ``slices`` in; ``probabilities`` out
deferred            ``DeferredTail(spec, columns)``                       ``slices`` in; ``outputs`` out
==================  ====================================================  ==========================

All streams are `amaranth.lib.stream` with struct payloads, whose layouts are in `payloads`:

- ``UnnormedSoftmax.slices``: ``x`` (lanes of raw words), ``mask`` (a bit per lane, 1 takes part), ``row``
  (only if rows > 1), ``first``, ``last``.
- ``UnnormedSoftmax.unnormed``: ``u`` (lanes), ``max`` (the slice's running max; in a row's last slice the
  row's max), ``row``, ``last``; one for every slice.
- ``UnnormedSoftmax.sums``: ``powsum``, ``row``; one for every row, in the order in which rows finish, three
  cycles after the row's last unnormed slice. A stream of its own, so that no unnormed word waits in
  registers for it.
- ``Normalization.finished``: ``max``, ``powsum``, ``row``; one for every row, ahead of its slices.
- ``Normalization.slices``: ``u`` (lanes), ``max`` (the slice's), ``last``.
- ``Normalization.probabilities``: ``y`` (lanes), ``row``, ``last``, and ``exponent`` if row-scaled.
- With row products (A10) ``UnnormedSum`` and ``ProductNormalization`` take the places of `UnnormedSoftmax` and `Normalization`:
  ``UnnormedSum.finished`` is what ``ProductNormalization.finished`` takes, its ``slices`` have ``x``, ``mask``, ``last``.
- ``DeferredTail.slices``: ``u`` (lanes), ``max``, ``last``, ``v`` (lanes of int8 values).
- ``DeferredTail.outputs``: ``o`` (columns), ``exponent``; one for every row.

Around them: `units` makes one by name from a spec, `export` writes its files, `vectors` has what streams carry, `simulation` runs
any component in Verilator. `arithmetic` and `pipeline` are shared with `baseline`, the FP16 units, and `pe`, the
processing element; `verification` has what `softermax verify` runs. `baseline`, `pe`, `export` and `verification` import the
modules here, never the other way round.

Submodules are named after the files, so that synthesis can report area by unit. A component states
its ``latency`` in cycles. `convert` makes RTLIL and Verilog of any component.
"""
