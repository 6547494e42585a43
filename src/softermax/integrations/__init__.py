"""Softermax inside other people's models: Hugging Face transformers, ONNX."""
