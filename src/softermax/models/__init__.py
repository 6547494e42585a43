"""Softermax in models: pretrained weights, the drop-in for Hugging Face, quantisation, ONNX, perplexity, statistics."""
