"""The safetensors library reads what we wrote: every copy of one random tensor agrees."""
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file

tensors = load_file(sys.argv[1])
with safe_open(sys.argv[1], "pt") as file:
    assert file.metadata() == {"format": "pt"}, file.metadata()
base = tensors["float"]
assert base.shape == (2, 3, 4, 5) and base.abs().max() > 1
expected = {
    "half": base.half(), "double": base.double(), "bfloat": base.bfloat16(),
    "int": base.int(), "long": base.long(), "byte": base.abs().byte(), "bool": base > 0,
    "channels_last": base, "transposed": base.transpose(0, 3),
    "scalar": torch.tensor(1.5), "empty": torch.zeros(0, 3),
}
for name, value in expected.items():
    assert tensors[name].dtype == value.dtype, name
    assert tensors[name].shape == value.shape, name
    assert torch.equal(tensors[name], value), name
assert len(tensors) == len(expected) + 1
