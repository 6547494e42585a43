"""MPNet computes its attention in line and never asks for an implementation; this class does."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.mpnet.modeling_mpnet import MPNetSelfAttention


class DispatchingMPNetSelfAttention(MPNetSelfAttention):
    """MPNet's self-attention through transformers' attention interface.

    Takes the place of the class of an existing module, so it adds no parameter; ``config`` is set then.
    The name ends in Attention, and the interface is a global of this file, because that is how
    nvidia-modelopt recognises attention whose operands it can quantise.
    """

    is_causal = False
    config: Any

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, ...]:
        shape = hidden_states.shape[:-1]
        heads = (*shape, -1, self.attention_head_size)
        query, key, value = (
            project(hidden_states).view(heads).transpose(1, 2) for project in (self.q, self.k, self.v)
        )
        attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        context, probabilities = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            scaling=self.attention_head_size**-0.5,
            dropout=self.dropout.p if self.training else 0.0,
            position_bias=position_bias,
        )
        output = self.o(context.reshape(*shape, -1))
        return (output, probabilities) if output_attentions else (output,)


def dispatching_class(original: type) -> type | None:
    """The class to put in the place of ``original``, if it needs one."""
    return DispatchingMPNetSelfAttention if original is MPNetSelfAttention else None
