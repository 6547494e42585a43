"""Softermax in Hugging Face transformers: the public face of `softermax.models.drop_in`.

Importing it registers the attention implementations ``softermax`` and ``softmax``.
"""

from softermax.models.absorb import absorb_base
from softermax.models.drop_in import Attended, disable, enable, enabled, observe, use_softmax
from softermax.models.layers import load_layers

__all__ = ["Attended", "absorb_base", "disable", "enable", "enabled", "load_layers", "observe", "use_softmax"]
