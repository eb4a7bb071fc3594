"""The devices `stand_in:0` and `stand_in:1` (stand_in.cpp): known to torch, and to accelerate as what trains.

A process that has called `register` keeps them until it ends, and `auto` then means `stand_in`.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import torch

NAME = "stand_in"
COUNT = 2


def missing() -> str | None:
    """Return why the devices cannot be built here, or None."""
    absent = [tool for tool in (os.environ.get("CXX", "c++"), "ninja") if shutil.which(tool) is None]
    return f"compiling the stand-in device requires {' and '.join(absent)}" if absent else None


def build() -> None:
    """Compile stand_in.cpp, or take what torch kept of an earlier build, and load it."""
    from torch.utils.cpp_extension import load

    source = Path(__file__).with_suffix(".cpp")
    load("layerwise_stand_in", [str(source)], is_python_module=False, extra_cflags=["-O1"])


def register() -> None:
    """Make the devices known to torch and accelerate."""
    if hasattr(torch, NAME):
        return
    torch.utils.rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, Module())
    torch.utils.generate_methods_for_privateuse1_backend()
    build()
    _train_on_it()


def _index(device: Any) -> int:
    index = torch.device(device).index if isinstance(device, str | torch.device) else device
    return torch.accelerator.current_device_index() if index is None else index


class Module:
    """The counterpart of `torch.cuda`, as far as libraries use it."""

    device_count = staticmethod(lambda: COUNT)
    is_available = is_initialized = staticmethod(lambda: True)
    is_bf16_supported = staticmethod(lambda *_: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    _lazy_init = staticmethod(lambda: None)
    current_device = staticmethod(lambda: torch.accelerator.current_device_index())
    set_device = staticmethod(lambda device: torch.accelerator.set_device_index(_index(device)))
    synchronize = staticmethod(lambda device=None: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.float16, torch.bfloat16])

    def manual_seed(self, seed: int) -> None:
        torch.ops.stand_in.seed(self.current_device(), seed)

    def manual_seed_all(self, seed: int) -> None:
        for index in range(COUNT):
            torch.ops.stand_in.seed(index, seed)

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        state: torch.Tensor = torch.ops.stand_in.get_state(_index(device))
        return state

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        torch.ops.stand_in.set_state(_index(device), state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [self.get_rng_state(index) for index in range(COUNT)]

    def set_rng_state_all(self, states: list[torch.Tensor]) -> None:
        for index, state in enumerate(states):
            self.set_rng_state(state, index)

    class device:  # noqa: N801  (the name in torch.accelerator)
        """The current device within a context."""

        def __init__(self, device: Any) -> None:
            self.index = _index(device)

        def __enter__(self) -> None:
            self.before = torch.accelerator.current_device_index()
            torch.accelerator.set_device_index(self.index)

        def __exit__(self, *_: object) -> None:
            torch.accelerator.set_device_index(self.before)


def _train_on_it() -> None:
    """Accelerate finds devices of the kinds that it knows, and others by an environment variable alone."""
    from accelerate.state import PartialState
    from transformers import training_args

    begin = PartialState.__init__

    def begin_there(self: Any, cpu: bool = False, **options: Any) -> None:
        os.environ.pop("ACCELERATE_TORCH_DEVICE", None)
        if not cpu:
            os.environ["ACCELERATE_TORCH_DEVICE"] = f"{NAME}:0"
        begin(self, cpu=cpu, **options)

    PartialState.__init__ = begin_there  # type: ignore[method-assign]
    training_args.is_torch_bf16_gpu_available = lambda: True  # type: ignore[attr-defined]
