"""Metrics of tasks against scikit-learn and PyTorch.

usage: task_metrics.py KIND FILE VALUES

KIND is classes, labels, numbers or tokens; FILE has the outputs of a model and the batch; VALUES are ours, in
JSON. Every value of ours has to be among theirs.
"""
import json
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from sklearn import metrics
from sklearn.preprocessing import label_binarize


def of_classes(tensors):
    valid = tensors["target"] >= 0
    logits, targets = tensors["output"][valid], tensors["target"][valid].numpy()
    # float32, as ours are ranked: in float64 there would be fewer ties.
    scores = logits.softmax(1).numpy()
    classes = np.arange(scores.shape[1])
    said = scores.argmax(1)
    # Rows of float32 do not add up to 1 as exactly as scikit-learn wants to see.
    one_hot = label_binarize(targets, classes=classes)
    theirs = {
        "accuracy": metrics.accuracy_score(targets, said),
        "accuracy_top_2": metrics.top_k_accuracy_score(targets, scores, k=2),
        "f1": metrics.f1_score(targets, said, average="macro"),
        "f1_micro": metrics.f1_score(targets, said, average="micro"),
        "auroc": metrics.roc_auc_score(one_hot, scores, average="macro"),
        "auroc_micro": metrics.roc_auc_score(one_hot, scores, average="micro"),
        "average_precision": metrics.average_precision_score(one_hot, scores, average="macro"),
        "average_precision_micro": metrics.average_precision_score(one_hot, scores, average="micro"),
        "perplexity": F.cross_entropy(logits, tensors["target"][valid]).exp().item(),
    }
    per_class = {
        "accuracy_class": metrics.recall_score(targets, said, average=None),
        "f1_class": metrics.f1_score(targets, said, average=None),
        "auroc_class": metrics.roc_auc_score(one_hot, scores, average=None),
        "average_precision_class": metrics.average_precision_score(one_hot, scores, average=None),
    }
    for name, values in per_class.items():
        theirs |= {f"{name}_{i}": value for i, value in enumerate(values)}
    table = metrics.confusion_matrix(targets, said, labels=classes)
    return theirs | {f"confusion_{i}_{j}": table[i, j] for i in classes for j in classes}


def of_labels(tensors):
    scores, targets = tensors["output"].numpy(), tensors["target"].numpy()
    valid = (targets == 0) | (targets == 1)
    said = scores > 0
    columns = [(targets[valid[:, l], l], scores[valid[:, l], l], said[valid[:, l], l]) for l in range(scores.shape[1])]
    all_targets, all_scores, all_said = targets[valid], scores[valid], said[valid]
    per_label = {
        "f1": [metrics.f1_score(is_, yes) for is_, _, yes in columns],
        "auroc": [metrics.roc_auc_score(is_, score) for is_, score, _ in columns],
        "average_precision": [metrics.average_precision_score(is_, score) for is_, score, _ in columns],
    }
    theirs = {
        "accuracy": metrics.accuracy_score(all_targets, all_said),
        "f1_micro": metrics.f1_score(all_targets, all_said),
        "auroc_micro": metrics.roc_auc_score(all_targets, all_scores),
        "average_precision_micro": metrics.average_precision_score(all_targets, all_scores),
    }
    for name, values in per_label.items():
        theirs[name] = np.mean(values)
        theirs |= {f"{name}_label_{i}": value for i, value in enumerate(values)}
    return theirs


def of_numbers(tensors):
    outputs, targets = tensors["output"].double().numpy(), tensors["target"].double().numpy()
    mask = tensors["mask"].bool().numpy()
    return {
        "mae": metrics.mean_absolute_error(targets[mask], outputs[mask]),
        "rmse": metrics.root_mean_squared_error(targets[mask], outputs[mask]),
        "r2": np.mean([metrics.r2_score(targets[mask[:, v], v], outputs[mask[:, v], v]) for v in range(2)]),
    }


def of_tokens(tensors):
    span = tensors["span"].bool()
    logits, targets = tensors["output"][span], tensors["target"][span]
    loss = F.cross_entropy(logits.double(), targets, reduction="sum").item()
    return {
        "perplexity": math.exp(loss / len(targets)),
        "bits_per_byte": loss / math.log(2) / tensors["bytes"][span].sum().item(),
        "accuracy": (logits.argmax(1) == targets).double().mean().item(),
    }


kinds = {"classes": of_classes, "labels": of_labels, "numbers": of_numbers, "tokens": of_tokens}
theirs = kinds[sys.argv[1]](load_file(sys.argv[2]))
ours = json.loads(sys.argv[3])
assert set(ours) == set(theirs), set(ours) ^ set(theirs)
for name, value in ours.items():
    # Exact but for the last bits; a loss is a sum of float32.
    tolerance = 1e-5 if name in ("perplexity", "bits_per_byte") else 1e-10
    assert abs(value - theirs[name]) <= tolerance * max(1, abs(theirs[name])), (name, value, theirs[name])
print(f"{len(ours)} values of {sys.argv[1]} are the same")
