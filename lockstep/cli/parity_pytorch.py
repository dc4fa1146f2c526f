"""One rank of a training by PyTorch's DistributedDataParallel, for `lockstep parity`.

usage: parity_pytorch.py REQUEST.json    (with torchrun's variables in the environment)

Starts from the weights, and takes the samples and learning rates, that a run of Lockstep
left in its trace; the model, the loss, the exchange and the update are PyTorch's own.
Rank 0 writes the same files. Needs torch and nothing else.
"""

import ctypes
import json
import os
import struct
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d
from torch.nn.parallel import DistributedDataParallel

DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read_tensors(path):
    """A safetensors file, by hand: the package of that name need not be here."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    tensors = {}
    for name, about in header.items():
        begin, end = about["data_offsets"]
        dtype = DTYPES[about["dtype"]]
        # frombuffer takes no empty buffer, and a rank's share may be empty.
        flat = (torch.frombuffer(data[begin:end], dtype=dtype) if end > begin
                else torch.empty(0, dtype=dtype))
        tensors[name] = flat.reshape(about["shape"])
    return tensors


def write_tensors(path, tensors):
    header, parts, offset = {}, [], 0
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        part = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(part)]}
        parts.append(part)
        offset += len(part)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


class Cnn(nn.Module):
    """lockstep/models/cnn.cpp."""

    def __init__(self, config, shape, classes):
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * (height // 4) * (width // 4), config["hidden"])
        self.output = nn.Linear(config["hidden"], classes)

    def forward(self, x):
        x = max_pool2d(self.conv1(x).relu(), 2)
        x = max_pool2d(self.conv2(x).relu(), 2)
        return self.output(self.hidden(x.flatten(1)).relu())


class Mlp(nn.Module):
    """lockstep/models/mlp.cpp."""

    def __init__(self, config, shape, classes):
        super().__init__()
        width = 1
        for size in shape:
            width *= size
        self.count = config["layers"]
        for i in range(self.count):
            self.add_module(f"hidden{i + 1}", nn.Linear(width, config["hidden"]))
            width = config["hidden"]
        self.output = nn.Linear(width, classes)

    def forward(self, x):
        x = x.flatten(1)
        for i in range(self.count):
            x = getattr(self, f"hidden{i + 1}")(x).relu()
        return self.output(x)


MODELS = {"cnn": Cnn, "mlp": Mlp}


def build_model(config, start, shape):
    if config["name"] not in MODELS:
        sys.exit(f"there is no PyTorch version of model.name={config['name']} here; "
                 f"there are {', '.join(MODELS)}")
    values = {name.removeprefix("parameter/"): tensor for name, tensor in start.items()}
    model = MODELS[config["name"]](config, shape, values["output.weight"].shape[0]).double()
    model.load_state_dict(values, strict=True)
    return model


def build_optimizer(config, parameters):
    if config["name"] == "adamw":
        return torch.optim.AdamW(parameters, lr=config["lr"], betas=tuple(config["betas"]),
                                 eps=config["eps"], weight_decay=config["weight_decay"])
    return torch.optim.SGD(parameters, lr=config["lr"], momentum=config["momentum"],
                           nesterov=config["nesterov"], weight_decay=config["weight_decay"])


def read_batch(request, step):
    """The samples of all ranks of the reference, which are those of the whole step."""
    parts = [read_tensors(os.path.join(request["reference"],
                                       f"batch_{step:06}_rank_{rank}.safetensors"))
             for rank in range(request["reference_ranks"])]
    return (torch.cat([part["inputs"] for part in parts]).double(),
            torch.cat([part["targets"] for part in parts]))


def step_path(folder, step):
    return os.path.join(folder, f"step_{step:06}.safetensors")


def state_of(model, gradients=False):
    if gradients:
        return {f"gradient/{name}": p.grad for name, p in model.named_parameters()}
    return {f"parameter/{name}": p for name, p in model.named_parameters()}


def train_step(model, optimizer, inputs, targets):
    """The loss of this rank's share, summed; gradients are those of the whole batch."""
    rank, world, total = dist.get_rank(), dist.get_world_size(), len(targets)
    begin, end = total * rank // world, total * (rank + 1) // world
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs[begin:end]), targets[begin:end], reduction="sum")
    # DDP averages over the ranks; what is wanted is the sum over samples / their number.
    (loss / total * world).backward()
    return loss.detach()


def train(request):
    start = read_tensors(step_path(request["reference"], 0))
    first, _ = read_batch(request, 1)
    model = build_model(request["model"], start, first.shape[1:])
    shared = DistributedDataParallel(model)
    optimizer = build_optimizer(request["optim"], model.parameters())
    writes = dist.get_rank() == 0
    if writes:
        write_tensors(step_path(request["trace"], 0), state_of(model))
    for step in range(1, request["steps"] + 1):
        inputs, targets = read_batch(request, step)
        lr = read_tensors(step_path(request["reference"], step))["lr"]
        for group in optimizer.param_groups:
            group["lr"] = lr.item()
        loss = train_step(shared, optimizer, inputs, targets)
        dist.all_reduce(loss)
        tensors = {name: grad.clone() for name, grad in state_of(model, True).items()}
        optimizer.step()
        tensors.update(state_of(model))
        tensors["loss"] = (loss / len(targets)).reshape(1)
        tensors["lr"] = lr
        if writes:
            write_tensors(step_path(request["trace"], step), tensors)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    torch.set_num_threads(request["threads"])
    dist.init_process_group("gloo")
    train(request)
    dist.barrier()
    dist.destroy_process_group()


main()
