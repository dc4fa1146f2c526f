"""One rank of a training by PyTorch's DistributedDataParallel, for `lockstep parity`.

usage: parity_pytorch.py REQUEST.json    (with torchrun's variables in the environment)

Starts from the weights, and takes the samples and learning rates, that a run of Lockstep
left in its trace; the model, the loss, the exchange and the update are PyTorch's own.
Rank 0 writes the same files. Needs torch and nothing else.
"""

import ctypes
import fnmatch
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
    values = {name.removeprefix("parameter/"): tensor for name, tensor in start.items()}
    if config["name"] == "torchscript":
        model = torch.jit.load(config["file"], map_location="cpu").double()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(values[name])
        return model
    if config["name"] not in MODELS:
        sys.exit(f"there is no PyTorch version of model.name={config['name']} here; "
                 f"there are {', '.join(MODELS)}, torchscript")
    model = MODELS[config["name"]](config, shape, values["output.weight"].shape[0]).double()
    model.load_state_dict(values, strict=True)
    return model


class Lion(torch.optim.Optimizer):
    """PyTorch has none: the formulas of the paper (arXiv 2302.06675)."""

    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                update = (beta1 * mean + (1 - beta1) * p.grad).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * update)
                self.state[p]["mean"] = beta2 * mean + (1 - beta2) * p.grad


def has_no_decay(rule, name, parameter):
    if rule == "auto":
        return parameter.dim() <= 1
    patterns = [] if rule == "none" else rule.split(",")
    return any(fnmatch.fnmatchcase(name, pattern.strip()) for pattern in patterns)


def layer_of(name):
    """A name up to its first number, or its first part if it has none."""
    parts = name.split(".")
    for i, part in enumerate(parts[:-1]):
        if part.isdigit():
            return ".".join(parts[:i + 1])
    return parts[0]


def groups_of(config, model):
    """Each parameter by itself: "scale" is that of its learning rate."""
    layers = list(dict.fromkeys(layer_of(name) for name, _ in model.named_parameters()))
    groups = []
    for name, parameter in model.named_parameters():
        above = len(layers) - 1 - layers.index(layer_of(name))
        decays = not has_no_decay(config["no_decay"], name, parameter)
        groups.append({"params": [parameter], "scale": config["layer_decay"] ** above,
                       "weight_decay": config["weight_decay"] if decays else 0})
    return groups


def build_optimizer(config, model):
    name, lr, groups = config["name"], config["lr"], groups_of(config, model)
    betas = tuple(config["betas"])
    if name in ("adam", "adamw"):
        kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
        return kind(groups, lr=lr, betas=betas, eps=config["eps"])
    if name == "lion":
        return Lion(groups, lr, betas)
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=config["momentum"],
                               nesterov=config["nesterov"])
    sys.exit(f"there is no PyTorch version of optim.name={name} here")


def clip(config, model):
    if config["clip_norm"] > 0:
        nn.utils.clip_grad_norm_(model.parameters(), config["clip_norm"])
    if config["clip_value"] > 0:
        nn.utils.clip_grad_value_(model.parameters(), config["clip_value"])


def read_batch(request, step):
    """The samples of all ranks of the reference, which are those of the whole step."""
    parts = [read_tensors(os.path.join(request["reference"],
                                       f"batch_{step:06}_rank_{rank}.safetensors"))
             for rank in range(request["reference_ranks"])]
    targets = torch.cat([part["targets"] for part in parts])
    return (torch.cat([part["inputs"] for part in parts]).double(),
            targets.double() if targets.is_floating_point() else targets)


def step_path(folder, step):
    return os.path.join(folder, f"step_{step:06}.safetensors")


def state_of(model, gradients=False):
    """A layer that is used under two names has both, as in our traces."""
    all_names = model.named_parameters(remove_duplicate=False)
    if gradients:
        return {f"gradient/{name}": p.grad for name, p in all_names}
    return {f"parameter/{name}": p for name, p in all_names}


def size_of(targets, weights):
    """What a mean is divided by: mixed samples, which have shares of classes, are counted."""
    if weights is None or targets.is_floating_point():
        return len(targets)
    return weights[targets].sum().item()


def train_step(model, optimizer, inputs, targets, weights):
    """This rank's part of the mean loss; gradients are those of the whole batch."""
    rank, world, total = dist.get_rank(), dist.get_world_size(), len(targets)
    begin, end = total * rank // world, total * (rank + 1) // world
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs[begin:end]), targets[begin:end], weight=weights,
                         reduction="sum") / size_of(targets, weights)
    # DDP averages over the ranks; what is wanted is the sum.
    (loss * world).backward()
    return loss.detach()


def train(request):
    start = read_tensors(step_path(request["reference"], 0))
    first, _ = read_batch(request, 1)
    model = build_model(request["model"], start, first.shape[1:])
    shared = DistributedDataParallel(model)
    optimizer = build_optimizer(request["optim"], model)
    weights = None
    if request["class_weights"]:
        weights = torch.tensor(request["class_weights"], dtype=torch.float64)
    writes = dist.get_rank() == 0
    if writes:
        write_tensors(step_path(request["trace"], 0), state_of(model))
    for step in range(1, request["steps"] + 1):
        inputs, targets = read_batch(request, step)
        lr = read_tensors(step_path(request["reference"], step))["lr"]
        for group in optimizer.param_groups:
            group["lr"] = lr.item() * group["scale"]
        loss = train_step(shared, optimizer, inputs, targets, weights)
        dist.all_reduce(loss)
        tensors = {name: grad.clone() for name, grad in state_of(model, True).items()}
        clip(request["optim"], model)
        optimizer.step()
        tensors.update(state_of(model))
        tensors["loss"] = loss.reshape(1)
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
