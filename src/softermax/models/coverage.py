"""Does all of a model's attention go through ours? Otherwise an error that names what does not.

transformers accepts an attention's name for architectures that never ask for it, or ask for it in some of their layers
only. Such a module then computes an exact softmax, and often with a mask that was made for another implementation.
So while a model's attention modules run for the first time, every softmax is looked at: one inside of an attention
module that is not ours ends the pass. When each of these modules has run, the guard takes itself away.

What counts as an attention module is its class's name: it has Attention or Attn in it, in transformers, timm and
PyTorch. A softmax elsewhere (a router of experts, a classifier) is none of ours.

Code that is being compiled is not guarded: run the model once before you compile it.
"""

from __future__ import annotations

import re
import sys
import threading
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

_ATTENTION = re.compile("attention|attn", re.IGNORECASE)
_SOFTMAXES = {
    "softmax", "_softmax", "gumbel_softmax", "logsumexp", "scaled_dot_product_attention", "flex_attention",
    "multi_head_attention_forward", "_native_multi_head_attention", "_transformer_encoder_layer_fwd",
}  # fmt: skip
"""Functions of PyTorch that compute a softmax; Reformer's chunks use logsumexp."""
_OURS = "softermax.models.attention"
_NAMED = 4


class _Pass(threading.local):
    """The guarded forward pass under way in this thread, if there is one."""

    root: nn.Module | None = None
    depth = 0
    called = False
    guard: Any = None  # a _Guard; PyTorch's modes have no types


_pass = _Pass()


def note_call() -> None:
    """Our attention was called."""
    if not torch.compiler.is_compiling():
        _pass.called = True


class Watch:
    """Guards a model until each of its attention modules has run once."""

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        self.model, self.name = model, name
        self._waiting = {module for module in model.modules() if _is_attention(module)}
        self._hooks: list[Any] = [module.register_forward_pre_hook(self._ran) for module in self._waiting]
        # Parts that are models too can be called by themselves: an encoder, a vision tower.
        for part in model.modules():
            if isinstance(part, PreTrainedModel):
                self._hooks.append(part.register_forward_pre_hook(self._enter))
                self._hooks.append(part.register_forward_hook(self._leave, always_call=True))

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _ran(self, module: nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling():
            self._waiting.discard(module)

    def _enter(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if _pass.root is module:
            _end_pass()  # The one before was interrupted.
        if _pass.root is None:
            _pass.root, _pass.called, _pass.guard = module, False, _Guard(self)
            _pass.guard.__enter__()
        _pass.depth += 1

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or not _pass.depth:
            return
        _pass.depth -= 1
        if _pass.depth:
            return
        _end_pass()
        # After an exception there is no output; the exception is the news then.
        if output is None:
            return
        if module is self.model and not _pass.called:
            raise ValueError(
                f"{type(module).__name__} never calls its attention implementation, so {self.name} has no effect in it"
            )
        if not self._waiting:
            self.stop()

    def refusal(self, owner: nn.Module) -> ValueError | None:
        """The error for a softmax in ``owner``; None if that is no attention of this model."""
        if not _is_attention(owner):
            return None
        names = [name for name, module in self.model.named_modules() if type(module) is type(owner)]
        if not any(module is owner for module in self.model.modules()):
            return None
        shown = ", ".join(names[:_NAMED]) + (
            f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        )
        return ValueError(
            f"{type(self.model).__name__}: {type(owner).__name__} computes a softmax of its own, so {self.name} does "
            f"not cover it; modules: {shown}"
        )


class _Guard(TorchFunctionMode):
    """Raises at a softmax in an attention module that is not ours."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") in _SOFTMAXES:
            owner = _owner(sys._getframe(1))
            refusal = self._watch.refusal(owner) if owner is not None else None
            if refusal is not None:
                raise refusal
        return func(*args, **(kwargs or {}))


def _end_pass() -> None:
    if _pass.guard is not None:
        _pass.guard.__exit__(None, None, None)
    _pass.root, _pass.depth, _pass.guard = None, 0, None


def _owner(frame: FrameType | None) -> nn.Module | None:
    """The module whose code computes the softmax; None if that is ours."""
    while frame is not None:
        if frame.f_globals.get("__name__") == _OURS:
            return None
        module = frame.f_locals.get("self")
        # A softmax that is a module itself belongs to the module around it.
        if isinstance(module, nn.Module) and "softmax" not in type(module).__name__.lower():
            return module
        frame = frame.f_back
    return None


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """The innermost attention modules of a model: those that call an attention implementation."""
    return [
        module
        for module in model.modules()
        if _is_attention(module)
        and not any(_is_attention(part) for part in module.modules() if part is not module)
    ]


def _is_attention(module: nn.Module) -> bool:
    return _ATTENTION.search(type(module).__name__) is not None
