"""Writes what PyTorch's users have in .pt files, and the same as safetensors.

usage: torch_save.py FOLDER

FOLDER/<case>.pt is what a restricted reader has to understand, FOLDER/<case>.safetensors
what it has to make of it; FOLDER/refused_<case>.pt holds what must not be read.
"""

import collections
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file


def every_dtype():
    torch.manual_seed(1)
    base = torch.randn(2, 3, 4, 5) * 10
    names = ["float16", "float64", "float32", "bfloat16", "int32", "int64", "int16", "int8",
             "bool", "complex64", "float8_e5m2", "float8_e4m3fn"]
    tensors = {name: base.to(getattr(torch, name)) for name in names}
    tensors["uint8"] = base.abs().to(torch.uint8)
    for name in ("uint16", "uint32", "uint64"):
        tensors[name] = base.abs().to(torch.int64).to(getattr(torch, name))
    return tensors


def layouts():
    base = torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5)
    return {
        "scalar": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
        "channels_last": base.contiguous(memory_format=torch.channels_last),
        "transposed": base.transpose(0, 3),
        "part": base[1, :, 1:3],
        "tied": base,
        "parameter": torch.nn.Parameter(base.clone()),
    }


def main():
    folder = Path(sys.argv[1])
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2))
    state = model.state_dict()
    cases = {
        "dtypes": (every_dtype(), every_dtype()),
        "layouts": (layouts(), layouts()),
        "module": (state, state),
        "plain_dict": (dict(state), state),
        "nested_model": ({"epoch": 3, "model": state, "lr": 0.1}, state),
        "nested_state_dict": ({"state_dict": collections.OrderedDict(state), "args": ["a", (1, None, True)]}, state),
        "with_optimizer": ({"model_state_dict": state, "optimizer": torch.optim.AdamW(model.parameters()).state_dict()},
                           state),
        "with_extra": ({**state, "_extra": 5}, state),
    }
    for name, (saved, tensors) in cases.items():
        torch.save(saved, folder / f"{name}.pt")
        save_file({key: value.detach().contiguous().clone() for key, value in tensors.items()},
                  folder / f"{name}.safetensors")
    torch.save(state, folder / "protocol_4.pt", pickle_protocol=4)
    save_file({key: value.contiguous() for key, value in state.items()}, folder / "protocol_4.safetensors")
    torch.save(model, folder / "refused_module.pt")
    torch.save({"print": print, **state}, folder / "refused_function.pt")
    torch.save(state, folder / "refused_legacy.pt", _use_new_zipfile_serialization=False)
    torch.save([1, 2], folder / "refused_list.pt")
    torch.save({"a": torch.zeros(1).expand(1000, 1000)}, folder / "refused_expanded.pt")


main()
