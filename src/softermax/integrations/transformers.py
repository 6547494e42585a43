"""Softermax in Hugging Face transformers: the public face of `softermax.models.drop_in`.

Importing it registers the attention implementations ``softermax`` and ``softmax``.
"""

from softermax.models.drop_in import Attended, disable, enable, enabled, observe

__all__ = ["Attended", "disable", "enable", "enabled", "observe"]
