"""Predicts with a program that `lockstep checkpoint export --format torchscript` has written.

usage: torchscript_program.py PROGRAM IMAGES PREDICTIONS

PROGRAM is opened by PyTorch alone; IMAGES is an IDX file (gzip) of bytes; PREDICTIONS are the lines of `lockstep predict` for
its first images. The program's notes say how bytes become its input. PyTorch makes ONNX of it, which ONNX Runtime runs.
"""

import gzip
import json
import sys
import tempfile
import warnings

import numpy
import onnxruntime
import torch

program, images, predictions = sys.argv[1:]
notes = {"lockstep.json": ""}
model = torch.jit.load(program, _extra_files=notes)
notes = json.loads(notes["lockstep.json"])
spec = notes["inputs"][0]
assert spec["shape"] == ["batch", 1, 28, 28] and spec["stored_as"] == "uint8", spec
lines = [json.loads(line) for line in open(predictions)]

with gzip.open(images) as file:
    pixels = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)[: len(lines)]
inputs = torch.from_numpy(pixels.copy()).float() * spec["scale"] + spec["shift"]
with torch.no_grad():
    shares = model(inputs).softmax(1)
expected = torch.tensor([line["probabilities"] for line in lines])
if not torch.allclose(shares, expected, rtol=1e-4, atol=1e-5):
    sys.exit(f"the largest difference of a probability is {(shares - expected).abs().max().item()}")
names = [notes["class_names"][i] for i in shares.argmax(1)]
if names != [line["class"] for line in lines]:
    sys.exit("other classes")

# As docs/weights.md says it, but for the file's place.
with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the exporter, about itself
    path = folder + "/model.onnx"
    torch.onnx.export(model, (inputs[:2],), path, dynamo=False, input_names=["input"], output_names=["output"],
                      dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}})
    session = onnxruntime.InferenceSession(path)
    outputs = torch.from_numpy(session.run(["output"], {"input": inputs.numpy()})[0])
with torch.no_grad():
    difference = (outputs - model(inputs)).abs().max().item()
if difference > 1e-4:  # fp32 sums in another order; logits are of the order of 10
    sys.exit(f"ONNX Runtime's outputs differ by {difference}")
