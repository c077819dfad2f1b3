"""Drop sensors that were hidden in training from the inputs of an exported policy."""

import dataclasses
from collections.abc import Collection

import numpy as np

from costate._base.types import Bool, Float
from costate.deploy.bundle import Bundle
from costate.deploy.network import FORMS
from costate.policies.running_stats import EPSILON


def inputs_without(bundle: Bundle, absent: Collection[str]) -> Bool[np.ndarray, " I"]:
    """Return which inputs of a policy remain without some groups of sensors and their parts of the mask."""
    layout = bundle.description["observation"]
    present = np.repeat([name not in absent for name, _ in layout], [size for _, size in layout])
    mask = {"none": np.ones(0, bool), "bit": np.ones(1, bool), "bits": present}[
        bundle.description["mask_input"]
    ]
    return np.concatenate([present, mask])


def without_groups(bundle: Bundle, absent: Collection[str]) -> Bundle:
    """Remove the inputs of some groups of sensors, which always read 0 in training, from a policy.

    With frozen statistics, a reading of 0 adds a constant to the encoder. This constant goes into the bias,
    so that actions stay the same up to the order of summation. A network form that treats a row of zeros as a
    blackout, which adds nothing, puts it elsewhere: in the weights of the input that says whether anything
    was seen.
    """
    if not absent:
        return bundle
    layout, read = bundle.description["observation"], inputs_without(bundle, absent)
    weights, bias = bundle.tensors["encoder.weights"].copy(), bundle.tensors["encoder.bias"].copy()
    target = FORMS[bundle.description["algorithm"]].constant_input(weights, bias, read.size)
    target += (_zeros_normalised(bundle)[~read] @ weights[: read.size][~read]).astype(np.float32)
    others = np.ones(weights.shape[0] - read.size, bool)
    tensors = bundle.tensors | {
        "encoder.weights": weights[np.concatenate([read, others])],
        "encoder.bias": bias,
    }
    tensors |= {name: bundle.tensors[name][read] for name in ("normaliser.mean", "normaliser.variance")}
    description = bundle.description | {
        "observation": [[name, size] for name, size in layout if name not in absent],
        "sensors": bundle.description["sensors"]
        | {"absent": [[name, size] for name, size in layout if name in absent]},
    }
    return dataclasses.replace(bundle, description=description, tensors=tensors)


def _zeros_normalised(bundle: Bundle) -> Float[np.ndarray, " I"]:
    """Return a row of zeros, normalised as the policy reads it."""
    mean, variance = (
        bundle.tensors[f"normaliser.{part}"].astype(np.float64) for part in ("mean", "variance")
    )
    row: Float[np.ndarray, " I"] = -mean / np.where(variance > 0.0, np.sqrt(variance + EPSILON), 1.0)
    clip = bundle.description["observation_clip"]
    return row if clip is None else np.clip(row, -clip, clip)
