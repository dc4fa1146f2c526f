"""Losses of tasks against torch.nn.functional: the mean and its gradient.

usage: task_losses.py FILE CASES

CASES is a list of options in JSON; FILE has for case 0 case0.scores, .targets, .mask and .weights (if
they count), and our .mean and .gradient. What does not count is cut out here; what PyTorch has no option for
(weights of single targets, focal) is written down in float64.
"""
import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file


def weighted_mean(each, weights, valid, divisors=None):
    """Over the targets that count; `divisors` is what each weighs beside its weight."""
    weights = torch.ones_like(each) if weights is None else weights
    divisors = torch.ones_like(each) if divisors is None else divisors
    return (each * weights)[valid].sum() / (divisors * weights)[valid].sum()


def focal(scores, targets, gamma, class_weights):
    p = scores.softmax(1)
    shares = targets if targets.is_floating_point() else F.one_hot(targets, scores.shape[1]).to(scores)
    # log_softmax, not log: the scores are large.
    return -(shares * (1 - p) ** gamma * scores.log_softmax(1) * class_weights).sum(1)


def cross_entropy(case, scores, targets, mask, weights):
    classes = scores.shape[1]
    class_weights = case.get("class_weights")
    class_weights = None if class_weights is None else torch.tensor(class_weights, dtype=scores.dtype)
    ignored = case.get("ignore_index", -100)
    soft = targets.is_floating_point()
    valid = torch.ones(len(scores), dtype=torch.bool) if mask is None else mask
    options = dict(weight=class_weights, label_smoothing=case["smoothing"])
    if case["gamma"] == 0 and weights is None:
        if soft:
            return F.cross_entropy(scores[valid], targets[valid], **options)
        return F.cross_entropy(scores[valid], targets[valid], ignore_index=ignored, **options)
    of_class = torch.ones(classes, dtype=scores.dtype) if class_weights is None else class_weights
    if not soft:
        valid = valid & (targets != ignored)
    if case["gamma"] == 0:
        each = F.cross_entropy(scores, targets, reduction="none", **options)
    else:
        each = focal(scores, targets, case["gamma"], of_class)
    return weighted_mean(each, weights, valid, None if soft else of_class[targets])


def binary_cross_entropy(case, scores, targets, mask, weights):
    unsure = targets == -1
    if case["uncertain"] == "ignore":
        targets = torch.where(unsure, torch.nan, targets)
    else:
        targets = torch.where(unsure, float(case["uncertain"] == "one"), targets)
    valid = ~targets.isnan()
    if mask is not None:
        valid &= mask
    positive = case.get("positive_weights")
    positive = None if positive is None else torch.tensor(positive, dtype=scores.dtype).expand_as(scores)
    gamma = case.get("gamma", 0)
    if weights is None and gamma == 0:
        return F.binary_cross_entropy_with_logits(
            scores[valid], targets[valid], pos_weight=None if positive is None else positive[valid])
    known = torch.where(valid, targets, 0.0)
    each = F.binary_cross_entropy_with_logits(scores, known, pos_weight=positive, reduction="none")
    if gamma > 0:
        right = known * scores.sigmoid() + (1 - known) * (-scores).sigmoid()
        each = each * (1 - right) ** gamma
    return weighted_mean(each, weights, valid)


def regression(case, scores, targets, mask, weights):
    names = {"mse": F.mse_loss, "mae": F.l1_loss, "huber": F.huber_loss}
    loss, options = names[case["loss"]], {"delta": case["delta"]} if case["loss"] == "huber" else {}
    valid = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
    if weights is None:
        return loss(scores[valid], targets[valid], **options)
    return weighted_mean(loss(scores, targets, reduction="none", **options), weights, valid)


def check(name, case, tensors):
    def find(what):
        tensor = tensors.get(f"{name}.{what}")
        return tensor.double() if tensor is not None and tensor.is_floating_point() else tensor

    kinds = {"cross_entropy": cross_entropy, "binary_cross_entropy": binary_cross_entropy}
    scores = find("scores").requires_grad_()
    mask = find("mask")
    mean = kinds.get(case["loss"], regression)(
        case, scores, find("targets"), None if mask is None else mask.bool(), find("weights"))
    mean.backward()
    # Ours are float32: sums of up to 160 numbers.
    worst = abs(mean.item() - find("mean").item()) / abs(mean.item())
    gradient = (scores.grad - find("gradient")).abs().max().item() / scores.grad.abs().max().item()
    assert worst < 2e-6 and gradient < 5e-6, (name, case, worst, gradient)
    return max(worst, gradient)


tensors = load_file(sys.argv[1])
cases = json.loads(sys.argv[2])
worst = max(check(f"case{i}", case, tensors) for i, case in enumerate(cases))
print(f"{len(cases)} losses and their gradients: largest relative difference {worst:.1e}")
