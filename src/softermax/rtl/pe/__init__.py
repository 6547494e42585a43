"""The processing element (PE): Q·K^T and Softermax in one accelerator tile, after MAGNet's.

===================  =====================================================================================
file                 what it is
===================  =====================================================================================
config               sizes of a PE, the paper's two configurations, and the word in which it takes a scale
payloads             payloads of the streams: commands in, scores between the parts
buffer               a memory with one read and one write port; input, weight buffer and collector are three
vector_mac           a lane: VectorSize products of 8 bits, added up
accumulator_shift    what deferred normalisation adds to a lane in P·V
requantize           24-bit accumulator to the input word of Softermax
requantize_half      the same to half precision, for the FP16 baselines
schedule             the order of reads: which vector, which weights, which accumulator, cycle by cycle
processing_element   all of these as one component: operands in, scores out, NLanes a cycle
weight_softmax       the Unnormed Softmax unit with weights of eight bits, for deferred normalisation
post_processing      requantisation and Unnormed Softmax
tile_store           the global buffer's part: slices of open rows until their row is finished
score_normalization  Normalization that makes its numerators of scores
shared_normalization one such unit for several PEs
counters             how often each memory was used
attention_run        attention's operands as commands, run in a simulation
attention_tile       PEs, global buffer and Normalization: operands in, probabilities out
deferred_tile        the same with deferred normalisation: attention's outputs out
baseline_tiles       the same with the FP16 baselines
===================  =====================================================================================
"""
