"""Run a trained costate policy with NumPy alone: copy this file next to a policy bundle.

    policy = Policy("policy.costate")
    policy.reset()
    action = policy.step(observation)            # keeps the memory itself; or, if you keep it:
    action, state = policy.predict(observation, state, is_first)

A bundle is one file in the safetensors format: eight bytes with the length of a JSON header, the header, and
float32 numbers. Reading it executes no code. Everything in it is checked before use: lengths, offsets,
shapes, a digest of every byte, and that all numbers are finite.
"""

import abc
import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

FORMAT = "costate-policy"
VERSION = 1
# Far above any policy of this library. A file that asks for more is not a bundle.
LARGEST_FILE = 2**28
LARGEST_HEADER = 2**20
LARGEST_SIZE = 2**16
NO_DIGEST = "0" * 64
LARGEST_NUMBER = 3e38  # about the largest float32

EPSILON = 1e-8  # in the normaliser's square root
WIDEST_BOUND = 1e6  # controls with larger bounds count as unbounded

Tensors = dict[str, np.ndarray]
Description = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]
Rows = Any
"""An array, or anything that NumPy's functions accept: an exporter passes graph nodes instead."""


class BundleError(ValueError):
    """The file is not a complete policy bundle."""


class MisuseError(ValueError):
    """The policy cannot answer the call. The message says what to do instead."""


# ── The file ──


def read_bundle(path: str | os.PathLike[str]) -> tuple[Description, Tensors]:
    """Return the description and weights of a bundle file.

    Any other file is rejected before much of it is read.
    """
    name = os.fspath(path)
    try:
        status = os.stat(name)
        # Reading a pipe or a device might never end.
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"{name} is not a file. Give the policy bundle that `costate export` wrote.")
        if status.st_size > LARGEST_FILE:
            raise BundleError(
                f"{name} has {status.st_size:,} bytes, but a policy bundle has at most {LARGEST_FILE:,}."
            )
        with open(name, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BundleError(f"{name} cannot be read: {error.strerror or error}.") from error
    return parse_bundle(content, name)


def parse_bundle(content: bytes, name: str = "The bundle") -> tuple[Description, Tensors]:
    """Return the description and weights from the bytes of a bundle. ``name`` is used in errors."""
    if len(content) < 8:
        raise BundleError(f"{name} is truncated: it has {len(content)} bytes.")
    (length,) = struct.unpack("<Q", content[:8])
    if length > LARGEST_HEADER:
        raise BundleError(
            f"{name} is not a policy bundle: its header would have {length:,} bytes, but at most "
            f"{LARGEST_HEADER:,} are allowed."
        )
    if 8 + length > len(content):
        raise BundleError(
            f"{name} is truncated: its header has {length:,} bytes, but the whole file has {len(content):,}."
        )
    header = _json(content[8 : 8 + length], f"{name}: its header")
    metadata = header.pop("__metadata__", None)
    if (
        not isinstance(metadata, dict)
        or metadata.keys() != {"costate", "sha256"}
        or not all(isinstance(value, str) for value in metadata.values())
    ):
        raise BundleError(
            f"{name} is not a policy bundle: its header does not describe a policy. Give the file that "
            f"`costate export` wrote."
        )
    description = _json(metadata["costate"].encode("utf-8", "surrogatepass"), f"{name}: its description")
    _check_version(description, name)
    _check_digest(content, length, metadata["sha256"], name)
    tensors = _tensors(header, content, 8 + length, name)
    check_description(description, name)
    return description, tensors


def _json(content: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object. Reject duplicate names, NaN and Inf."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("a name occurs twice")
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a valid number")

    try:
        parsed = json.loads(content.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise BundleError(
            f"{what} is truncated or was altered: it is not the JSON that `costate export` writes ({error})."
        ) from error
    if not isinstance(parsed, dict):
        raise BundleError(f"{what} is truncated or was altered: it is not a JSON object.")
    return parsed


def _check_version(description: Description, name: str) -> None:
    version = description.get("version")
    if description.get("format") != FORMAT or not _is_int(version):
        raise BundleError(
            f"{name} is not a policy bundle: its format is missing. Give the file that `costate export` "
            f"wrote."
        )
    if version != VERSION:
        raise BundleError(
            f"{name} has format version {version}, but this reader supports version {VERSION}. Use the "
            f"costate that wrote it, or a newer one."
        )


def _check_digest(content: bytes, length: int, digest: str, name: str) -> None:
    """Check the digest, which covers all bytes, with zeros in its own place."""
    entry, header = f'"sha256":"{digest}"'.encode("utf-8", "surrogatepass"), content[8 : 8 + length]
    if header.count(entry) == 1 and len(digest) == len(NO_DIGEST):
        computed = hashlib.sha256(content[:8])
        computed.update(header.replace(entry, f'"sha256":"{NO_DIGEST}"'.encode()))
        computed.update(memoryview(content)[8 + length :])
        if computed.hexdigest() == digest:
            return
    raise BundleError(f"{name} is truncated or was altered: its digest does not match.")


def _tensors(header: dict[str, Any], content: bytes, start: int, name: str) -> Tensors:
    """Return arrays that fill the rest of the file without gap or overlap."""
    tensors, position = {}, 0
    for key, entry in sorted(header.items(), key=lambda item: _offsets(item, name)):
        begin, end = entry["data_offsets"]
        shape = entry["shape"]
        if (
            not isinstance(shape, list)
            or len(shape) > 4
            or not all(_is_int(size) and 0 <= size <= LARGEST_SIZE for size in shape)
        ):
            raise BundleError(f"{name}: {key} has the shape {_short(shape)}, which no policy has.")
        if entry["dtype"] != "F32":
            raise BundleError(
                f"{name}: {key} has dtype {_short(entry['dtype'])}, but a policy's arrays are F32."
            )
        if begin != position or end - begin != 4 * math.prod(shape) or start + end > len(content):
            raise BundleError(
                f"{name} is truncated or was altered: the offsets of {key} do not fit its shape {shape}."
            )
        array = (
            np.frombuffer(content, "<f4", math.prod(shape), start + begin).reshape(shape).astype(np.float32)
        )
        if not np.isfinite(array).all():
            raise BundleError(f"{name}: {key} contains NaN or Inf, with which a policy cannot act.")
        tensors[key], position = array, end
    if start + position != len(content):
        raise BundleError(
            f"{name} is truncated or was altered: {len(content) - start - position} bytes belong to no array."
        )
    return tensors


def _offsets(item: tuple[str, Any], name: str) -> tuple[int, int]:
    key, entry = item
    offsets = (
        entry.get("data_offsets")
        if isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}
        else None
    )
    if not (
        isinstance(offsets, list)
        and len(offsets) == 2
        and all(_is_int(each) and 0 <= each <= LARGEST_FILE for each in offsets)
    ):
        raise BundleError(f"{name} is truncated or was altered: the offsets of {_short(key)} are invalid.")
    return offsets[0], offsets[1]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_NUMBER


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


# ── What the description says ──


def check_description(description: Description, name: str) -> None:
    """Raise unless a description has every setting that is needed to act, of a valid type and size."""

    def require(holds: bool, what: str, value: Any) -> None:
        if not holds:
            raise BundleError(f"{name}: {what} is {_short(value)}, which no policy has.")

    wanted = {
        "format",
        "version",
        "algorithm",
        "policy",
        "observation",
        "mask_input",
        "action",
        "observation_clip",
        "sensors",
        "provenance",
    }
    require(description.keys() == wanted, "the list of settings", sorted(map(str, description)))
    require(
        isinstance(description["algorithm"], str) and description["algorithm"] in FORMS,
        "algorithm",
        description["algorithm"],
    )
    require(description["mask_input"] in ("none", "bit", "bits"), "mask_input", description["mask_input"])
    layout = description["observation"]
    require(isinstance(layout, list) and 0 < len(layout) <= LARGEST_SIZE, "observation", layout)
    for group in layout:
        require(_is_group(group), "observation", group)
    require(len({group[0] for group in layout}) == len(layout), "observation, with a name twice,", layout)
    require(1 <= sum(size for _, size in layout) <= LARGEST_SIZE, "observation", layout)
    action = description["action"]
    require(isinstance(action, dict) and action.keys() == {"low", "high"}, "action", action)
    for bound in action.values():
        require(
            isinstance(bound, list) and 0 < len(bound) <= LARGEST_SIZE and all(map(_is_number, bound)),
            "action",
            bound,
        )
    require(len(action["low"]) == len(action["high"]), "action", action)
    require(
        all(low < high for low, high in zip(action["low"], action["high"], strict=True)), "action", action
    )
    clip = description["observation_clip"]
    require(clip is None or (_is_number(clip) and clip > 0), "observation_clip", clip)
    for part in ("sensors", "provenance"):
        require(isinstance(description[part], dict), part, description[part])
    absent = description["sensors"].get("absent", [])
    require(isinstance(absent, list), "the list of absent sensors", absent)
    for group in absent:
        require(_is_group(group), "an absent sensor", group)
    policy = description["policy"]
    require(
        isinstance(policy, dict)
        and policy.keys() == {"hidden_size", "feature_size", "ensemble", "core", "readout"},
        "policy",
        policy,
    )
    require(_is_size(policy["hidden_size"]) and _is_size(policy["ensemble"]), "policy", policy)
    require(
        policy["feature_size"] is None or _is_size(policy["feature_size"]),
        "feature_size",
        policy["feature_size"],
    )
    require(FORMS[description["algorithm"]].fits(policy), "policy", policy)
    for part in ("core", "readout"):
        settings = policy[part]
        require(isinstance(settings, dict) and isinstance(settings.get("name"), str), part, settings)
        for value in settings.values():
            plain = (
                value is None
                or isinstance(value, str)
                or (_is_number(value) and (not _is_int(value) or 0 <= value <= LARGEST_SIZE))
            )
            require(plain, part, settings)


def _is_group(value: Any) -> bool:
    """Return whether the value is a name with a size. An environment may have empty groups of sensors."""
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and (_is_size(value[1]) or (_is_int(value[1]) and value[1] == 0))
    )


def _is_size(value: Any) -> bool:
    return _is_int(value) and 1 <= value <= LARGEST_SIZE


class Sizes(NamedTuple):
    """Widths of inputs and outputs."""

    sensors: int
    mask: int
    """Width of the mask that follows the readings."""
    action: int
    feature: int
    hidden: int
    """Width of one hypothesis about the co-state."""
    members: int

    @property
    def observation(self) -> int:
        """Width of everything that the policy reads."""
        return self.sensors + self.mask


def sizes_of(description: Description) -> Sizes:
    """Return the widths in a checked description."""
    policy, sensors = description["policy"], sum(size for _, size in description["observation"])
    mask = {"none": 0, "bit": 1, "bits": sensors}[description["mask_input"]]
    feature = policy["feature_size"] or policy["hidden_size"]
    return Sizes(
        sensors, mask, len(description["action"]["low"]), feature, policy["hidden_size"], policy["ensemble"]
    )


# ── Cores: s' = step(ỹ, s), h = expose(s), by rows ──


class _Memory(abc.ABC):
    """A recurrent memory. Its state may be larger than the hidden state that it exposes."""

    @abc.abstractmethod
    def step(self, y: Rows, s: Rows) -> Rows:
        """Return the next state."""

    def expose(self, s: Rows) -> Rows:
        """Return the part of a state that plays the co-state."""
        return s


class _Core(_Memory):
    """A single core, which names the arrays that it needs."""

    @abc.abstractmethod
    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        """Build a core with these weights."""

    @staticmethod
    @abc.abstractmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        """Return the shapes of its arrays by name."""

    @staticmethod
    def width(settings: dict[str, Any], F: int, H: int) -> int:
        """Return the width of its state."""
        return H


def sigmoid(x: Rows) -> Rows:
    """Return σ(x), computed by tanh, which does not overflow and is faster than an exponential."""
    return 0.5 * np.tanh(0.5 * x) + 0.5


def _stacked(W: Rows, U: Rows) -> Rows:
    """Stack two matrices so that one product serves input and state: [ỹ, s] [W; U]."""
    return np.concatenate([W, U])


def _beside(y: Rows, s: Rows) -> Rows:
    return np.concatenate([y, s], axis=1)


class _GRU(_Core):
    """r, z = σ(W ỹ + U h + b),   n = tanh(W_n ỹ + U_n (r ⊙ h) + b_n),   h' = (1 − z) ⊙ n + z ⊙ h."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        W, U, b = w["input_weights"], w["recurrent_weights"], w["bias"]
        self.gates, self.gates_bias = (
            np.concatenate([_stacked(W[0], U[0]), _stacked(W[1], U[1])], axis=1),
            np.concatenate([b[0], b[1]]),
        )
        self.candidate, self.candidate_bias = _stacked(W[2], U[2]), b[2]
        self.size = b.shape[1]

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        return {"input_weights": (3, F, H), "recurrent_weights": (3, H, H), "bias": (3, H)}

    def step(self, y: Rows, s: Rows) -> Rows:
        gates = sigmoid(_beside(y, s) @ self.gates + self.gates_bias)
        r, z = gates[:, : self.size], gates[:, self.size :]
        n = np.tanh(_beside(y, r * s) @ self.candidate + self.candidate_bias)
        return n + z * (s - n)


class _ResetAfterGRU(_Core):
    """The GRU with n = tanh(W_n ỹ + b_n + r ⊙ (U_n h + c))."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        self.input, self.recurrent = (
            np.concatenate(list(w[name]), axis=1) for name in ("input_weights", "recurrent_weights")
        )
        self.bias, self.candidate_bias = w["bias"].reshape(-1), w["candidate_bias"]
        self.size = w["bias"].shape[1]

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        return _GRU.shapes(settings, F, H) | {"candidate_bias": (H,)}

    def step(self, y: Rows, s: Rows) -> Rows:
        H = self.size
        drive, recalled = y @ self.input + self.bias, s @ self.recurrent
        gates = sigmoid(drive[:, : 2 * H] + recalled[:, : 2 * H])
        r, z = gates[:, :H], gates[:, H:]
        n = np.tanh(drive[:, 2 * H :] + r * (recalled[:, 2 * H :] + self.candidate_bias))
        return n + z * (s - n)


class _Affine(_Core):
    """Cores whose nonlinearity acts elementwise on a = W ỹ + U s + b."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        self.weights, self.bias = _stacked(w["input_weights"], w["recurrent_weights"]), w["bias"]

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        return {"input_weights": (F, H), "recurrent_weights": (H, H), "bias": (H,)}

    def drive(self, y: Rows, s: Rows) -> Rows:
        return _beside(y, s) @ self.weights + self.bias


class _RNN(_Affine):
    """h' = tanh(a)."""

    def step(self, y: Rows, s: Rows) -> Rows:
        return np.tanh(self.drive(y, s))


class _CTRNN(_Affine):
    """h' = h + α ⊙ (tanh(a) − h)."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        super().__init__(settings, w)
        self.alpha = sigmoid(w["log_alpha"])

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        return _Affine.shapes(settings, F, H) | {"log_alpha": (H,)}

    def step(self, y: Rows, s: Rows) -> Rows:
        return s + self.alpha * (np.tanh(self.drive(y, s)) - s)


class _LSTM(_Affine):
    """c' = f ⊙ c + i ⊙ g,   h' = o ⊙ tanh(c'), of the state (h, c)."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        self.weights = _stacked(
            *(np.concatenate(list(w[name]), axis=1) for name in ("input_weights", "recurrent_weights"))
        )
        H = self.size = w["bias"].shape[1]
        self.bias = w["bias"].reshape(-1).copy()
        self.bias[H : 2 * H] += float(settings["forget_bias"])

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        return {"input_weights": (4, F, H), "recurrent_weights": (4, H, H), "bias": (4, H)}

    @staticmethod
    def width(settings: dict[str, Any], F: int, H: int) -> int:
        return 2 * H

    def step(self, y: Rows, s: Rows) -> Rows:
        H = self.size
        drive = self.drive(y, s[:, :H])
        gates = sigmoid(drive[:, : 3 * H])
        c = gates[:, H : 2 * H] * s[:, H:] + gates[:, :H] * np.tanh(drive[:, 3 * H :])
        return _beside(gates[:, 2 * H :] * np.tanh(c), c)

    def expose(self, s: Rows) -> Rows:
        return s[:, : self.size]


class _CoRNN(_Affine):
    """z' = z + Δt (tanh(a) − γ y − ε z),   y' = y + Δt z', of the state (y, z)."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        H = self.size = w["bias"].shape[0]
        self.weights, self.bias = (
            _stacked(w["input_weights"], w["recurrent_weights"].reshape(2 * H, H)),
            w["bias"],
        )
        self.time_step, self.stiffness, self.damping = (
            float(settings[name]) for name in ("time_step", "stiffness", "damping")
        )

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        return {"input_weights": (F, H), "recurrent_weights": (2, H, H), "bias": (H,)}

    @staticmethod
    def width(settings: dict[str, Any], F: int, H: int) -> int:
        return 2 * H

    def step(self, y: Rows, s: Rows) -> Rows:
        place, speed = s[:, : self.size], s[:, self.size :]
        speed = speed + self.time_step * (
            np.tanh(self.drive(y, s)) - self.stiffness * place - self.damping * speed
        )
        return _beside(place + self.time_step * speed, speed)

    def expose(self, s: Rows) -> Rows:
        return s[:, : self.size]


class _SSM(_Core):
    """x' = Λ x + Γ W ỹ,   h = tanh(C x + b), of the state (Re x, Im x)."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        decay = np.exp(w["log_decay"].astype(np.float64))
        radius, phase, scale = np.exp(-decay), w["phase"].astype(np.float64), np.sqrt(-np.expm1(-2.0 * decay))
        kind = w["bias"].dtype
        self.input = (w["input_weights"] * np.concatenate([scale, scale])).astype(kind)
        self.real = np.concatenate([radius * np.cos(phase)] * 2).astype(kind)
        self.imaginary = np.concatenate([-radius * np.sin(phase), radius * np.sin(phase)]).astype(kind)
        self.output, self.bias, self.modes = w["output_weights"], w["bias"], phase.shape[0]

    @staticmethod
    def width(settings: dict[str, Any], F: int, H: int) -> int:
        return 2 * (settings["modes"] or -(-H // 2))

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        C = _SSM.width(settings, F, H)
        return {
            "input_weights": (F, C),
            "output_weights": (C, H),
            "bias": (H,),
            "log_decay": (C // 2,),
            "phase": (C // 2,),
        }

    def step(self, y: Rows, s: Rows) -> Rows:
        swapped = _beside(s[:, self.modes :], s[:, : self.modes])
        return self.real * s + self.imaginary * swapped + y @ self.input

    def expose(self, s: Rows) -> Rows:
        return np.tanh(s @ self.output + self.bias)


class _CostateCell(_Core):
    """h' = (R_odd R_even h − B(ỹ)) / (1 + D(ỹ, û)) with û = G h."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        self.drives = np.concatenate(
            [w["source_weights"], w["decay_weights"], w["frequency_weights"]], axis=1
        )
        self.biases = np.concatenate([w["bias"], w["decay_bias"], w["frequency_bias"]])
        # The control û enters by two thin factors. Their product is as large as one of the full matrices.
        self.influence, self.by_control = (
            w["influence"],
            np.concatenate([w["decay_by_control"], w["frequency_by_control"]], axis=1),
        )
        self.size, self.least = w["bias"].shape[0], float(settings["slowest_decay"])

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        J, C = H - 1, settings["controls"]
        inputs = {
            "source_weights": (F, H),
            "decay_weights": (F, H),
            "frequency_weights": (F, J),
            "influence": (H, C),
        }
        return inputs | {
            "decay_by_control": (C, H),
            "frequency_by_control": (C, J),
            "bias": (H,),
            "decay_bias": (H,),
            "frequency_bias": (J,),
        }

    def step(self, y: Rows, s: Rows) -> Rows:
        H = self.size
        drives = y @ self.drives + self.biases
        terms = drives[:, H:] + (s @ self.influence) @ self.by_control
        decay = self.least + np.logaddexp(terms[:, :H], 0.0)
        return (self._rotate(terms[:, H:], s) - np.tanh(drives[:, :H])) / (1.0 + decay)

    def _rotate(self, frequency: Rows, s: Rows) -> Rows:
        half = -(-self.size // 2)
        pairs = self.size - half
        first, odd = _turn(frequency[:, :pairs], s[:, :pairs], s[:, half:])
        even = first if pairs == half else _beside(first, s[:, pairs:half])
        if half == 1:
            return _beside(even, odd)
        near, later = _turn(frequency[:, pairs:], odd[:, : half - 1], even[:, 1:])
        parts = [even[:, :1], later, near] + ([odd[:, half - 1 :]] if pairs == half else [])
        return np.concatenate(parts, axis=1)


def _turn(frequency: Rows, left: Rows, right: Rows) -> tuple[Rows, Rows]:
    """Rotate each plane by 2 arctan(ω/2)."""
    square = (0.5 * frequency) * (0.5 * frequency)
    scale = 1.0 / (1.0 + square)
    cosine, sine = (1.0 - square) * scale, frequency * scale
    return cosine * left - sine * right, sine * left + cosine * right


class _FrameStack(_Core):
    """h = tanh(Σ_i W_i ỹ_{t−i} + b).

    The state holds the last encoded observations, newest first.
    """

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        frames, F, H = w["input_weights"].shape
        self.weights, self.bias, self.older = (
            w["input_weights"].reshape(frames * F, H),
            w["bias"],
            (frames - 1) * F,
        )

    @staticmethod
    def width(settings: dict[str, Any], F: int, H: int) -> int:
        return int(settings["frames"]) * F

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        return {"input_weights": (settings["frames"], F, H), "bias": (H,)}

    def step(self, y: Rows, s: Rows) -> Rows:
        return _beside(y, s[:, : self.older]) if self.older else y

    def expose(self, s: Rows) -> Rows:
        return np.tanh(s @ self.weights + self.bias)


class _Memoryless(_Core):
    """h' = tanh(W ỹ + b)."""

    def __init__(self, settings: dict[str, Any], w: Tensors) -> None:
        self.weights, self.bias = w["input_weights"], w["bias"]

    @staticmethod
    def shapes(settings: dict[str, Any], F: int, H: int) -> Shapes:
        return {"input_weights": (F, H), "bias": (H,)}

    def step(self, y: Rows, s: Rows) -> Rows:
        return np.tanh(y @ self.weights + self.bias)


CORES: dict[str, type[_Core]] = {
    "gru": _GRU,
    "gru-reset-after": _ResetAfterGRU,
    "ctrnn": _CTRNN,
    "rnn": _RNN,
    "lstm": _LSTM,
    "cornn": _CoRNN,
    "ssm": _SSM,
    "costate-cell": _CostateCell,
    "frame-stack": _FrameStack,
    "memoryless": _Memoryless,
}


class _Ensemble(_Memory):
    """Several cores in parallel, each with its own memory."""

    def __init__(self, settings: dict[str, Any], w: Tensors, width_of_one: int) -> None:
        kind, self.count = CORES[settings["name"]], next(iter(w.values())).shape[0]
        self.members = [
            kind(settings, {name: array[i] for name, array in w.items()}) for i in range(self.count)
        ]
        self.width_of_one = width_of_one

    def step(self, y: Rows, s: Rows) -> Rows:
        return np.concatenate(
            [member.step(y, part) for member, part in zip(self.members, self._parts(s), strict=True)], axis=1
        )

    def expose(self, s: Rows) -> Rows:
        return np.concatenate(
            [member.expose(part) for member, part in zip(self.members, self._parts(s), strict=True)], axis=1
        )

    def _parts(self, s: Rows) -> list[Rows]:
        size = self.width_of_one
        return [s[:, i * size : (i + 1) * size] for i in range(self.count)]


# ── Control laws: from the switching function σ to a control ──


def _within(u: Rows, low: Rows, high: Rows) -> Rows:
    return np.minimum(np.maximum(u, low), high)


def _quadratic(sigma: Rows, low: Rows, high: Rows, settings: dict[str, Any]) -> Rows:
    """u = σ, within the bounds."""
    return _within(sigma, low, high)


def _tanh(sigma: Rows, low: Rows, high: Rows, settings: dict[str, Any]) -> Rows:
    """u = tanh σ, within the bounds."""
    return _within(np.tanh(sigma), low, high)


def _switching(sigma: Rows, low: Rows, high: Rows, settings: dict[str, Any]) -> Rows:
    """The upper bound where σ > w, the lower one where σ < −w, else nothing."""
    w = float(settings.get("fuel_weight", 0.0))
    return np.where(sigma > w, high, np.where(sigma < -w, low, 0.0 * low))


READOUTS: dict[str, Callable[[Rows, Rows, Rows, dict[str, Any]], Rows]] = {
    "quadratic": _quadratic,
    "tanh": _tanh,
    "bang-bang": _switching,
    "bang-off-bang": _switching,
}
SCALES = {
    "quadratic": "log_std",
    "tanh": "log_std",
    "bang-bang": "log_temperature",
    "bang-off-bang": "log_temperature",
}


# ── The policy as a function ──


class Decision(NamedTuple):
    """The result of one observation for every stream."""

    action: Rows
    state: Rows
    hidden: Rows
    """The part of the memory that plays the co-state."""
    value: Rows | None
    """The critic's value, or None if the critic is not part of the policy."""


def expected_shapes(description: Description) -> Shapes:
    """Return the arrays that a description implies. Raise for a core or readout without a NumPy form."""
    sizes, policy = sizes_of(description), description["policy"]
    core, readout = policy["core"], policy["readout"]
    for kind, known, name in (("core", CORES, core["name"]), ("readout", READOUTS, readout["name"])):
        if name not in known:
            raise BundleError(
                f"The {kind} {_short(name)} has no NumPy form. Available: {', '.join(known)}. Use --format "
                f"stablehlo."
            )
    F, H, A = sizes.feature, sizes.hidden, sizes.action
    try:
        inside = CORES[core["name"]].shapes(core, F, H)
    except (KeyError, TypeError) as error:
        raise BundleError(
            f"The settings of the core {core['name']} are missing or invalid: {_short(core)}."
        ) from error
    members = sizes.members > 1
    prefix, law, each = (
        ("core.members.", "readout.law.", (sizes.members,)) if members else ("core.", "readout.", ())
    )
    form = FORMS[description["algorithm"]]
    shapes: Shapes = {
        "normaliser.mean": (sizes.observation,),
        "normaliser.variance": (sizes.observation,),
        "normaliser.count": (),
    }
    shapes |= {"encoder.weights": (form.inputs(sizes), F), "encoder.bias": (F,)}
    shapes |= {prefix + name: (*each, *shape) for name, shape in inside.items()}
    shapes |= {law + "weights": (H, A), law + "bias": (A,), law + SCALES[readout["name"]]: (A,)}
    if readout.get("influence") == "observed":
        shapes[law + "modulation"] = (H, H)
    return shapes | form.beside(sizes)


def check_tensors(description: Description, tensors: Tensors, name: str) -> None:
    """Raise unless the arrays are those that the description implies."""
    wanted = expected_shapes(description)
    if wanted.keys() != tensors.keys():
        raise BundleError(
            f"{name} does not fit its own description. Arrays in only one of them: "
            f"{', '.join(sorted(wanted.keys() ^ tensors.keys()))}."
        )
    for key, shape in wanted.items():
        if tensors[key].shape != shape:
            raise BundleError(
                f"{name}: {key} has shape {list(tensors[key].shape)}, but its description implies "
                f"{list(shape)}."
            )
    if (tensors["normaliser.variance"] < 0.0).any():
        raise BundleError(f"{name}: the normaliser has a negative variance.")


class AbstractNetwork(abc.ABC):
    """The policy as a pure function of observation, state and episode starts, for any number of streams."""

    def __init__(
        self, description: Description, tensors: Tensors, dtype: Any = np.float32, name: str = "The bundle"
    ) -> None:
        check_tensors(description, tensors, name)
        w = {key: array.astype(dtype) for key, array in tensors.items()}
        policy, self.sizes = description["policy"], sizes_of(description)
        self.mean, variance = w["normaliser.mean"], w["normaliser.variance"]
        # A constant input is only centred.
        self.deviation = np.where(variance > 0.0, np.sqrt(variance + dtype(EPSILON)), dtype(1.0))
        self.clip = description["observation_clip"]
        self.encoder, self.encoder_bias = w["encoder.weights"], w["encoder.bias"]
        self._build_core(policy, w)
        law = "readout.law." if self.sizes.members > 1 else "readout."
        self.settings, self.law = policy["readout"], READOUTS[policy["readout"]["name"]]
        self.weights, self.bias, self.modulation = (
            w[law + "weights"],
            w[law + "bias"],
            w.get(law + "modulation"),
        )
        low, high = (np.asarray(description["action"][bound], np.float64) for bound in ("low", "high"))
        self._build_form(w, low, high)
        self.one, self.zero, self.dtype = np.ones((1, 1), dtype), np.zeros((1, 1), dtype), dtype

    def _build_core(self, policy: dict[str, Any], w: Tensors) -> None:
        members, core = self.sizes.members, policy["core"]
        prefix = "core.members." if members > 1 else "core."
        arrays = {key.removeprefix(prefix): array for key, array in w.items() if key.startswith(prefix)}
        try:
            width = CORES[core["name"]].width(core, self.sizes.feature, self.sizes.hidden)
            self.core: _Memory = (
                _Ensemble(core, arrays, width) if members > 1 else CORES[core["name"]](core, arrays)
            )
            float(policy["readout"].get("fuel_weight", 0.0))
        except (KeyError, TypeError, ValueError) as error:
            raise BundleError(
                f"The settings of the core {core['name']} or of the readout are missing or invalid: "
                f"{_short(policy)}."
            ) from error
        self.carried = width * members

    @staticmethod
    @abc.abstractmethod
    def inputs(sizes: Sizes) -> int:
        """Return the width of the encoder's input."""

    @staticmethod
    @abc.abstractmethod
    def beside(sizes: Sizes) -> Shapes:
        """Return the arrays that this form has besides encoder, core and readout."""

    @staticmethod
    @abc.abstractmethod
    def fits(policy: dict[str, Any]) -> bool:
        """Return whether a policy with these parts can have this form."""

    @abc.abstractmethod
    def _build_form(self, w: Tensors, low: np.ndarray, high: np.ndarray) -> None:
        """Set the bounds of the controls, in float64, and the weights that only this form has."""

    @property
    @abc.abstractmethod
    def state_size(self) -> int:
        """Width of the state that is carried from step to step."""

    @abc.abstractmethod
    def act(self, observation: Rows, inputs: Rows, state: Rows) -> Decision:
        """Take one step in every stream from normalised ``inputs``.

        States of new episodes are already reset.
        """

    def step(self, observation: Rows, state: Rows, is_first: Rows | None) -> Decision:
        """Take one step in every stream. A stream whose episode starts resets its memory first."""
        if is_first is not None:
            state = np.where(is_first[:, None], self.zero, state)
        inputs = (observation - self.mean) / self.deviation
        if self.clip is not None:
            inputs = np.minimum(np.maximum(inputs, -self.clip), self.clip)
        return self.act(observation, inputs, state)

    def remember(self, inputs: Rows, carried: Rows) -> tuple[Rows, Rows, Rows]:
        """Return the core's state after reading ``inputs``, its hidden state, and σ."""
        feature = np.tanh(inputs @ self.encoder + self.encoder_bias)
        carried = self.core.step(feature, carried)
        hidden = self.core.expose(carried)
        return carried, hidden, self.switching(feature, hidden)

    def switching(self, feature: Rows, hidden: Rows) -> Rows:
        """Return σ, of which the control is a function. An ensemble uses the mean of its hypotheses."""
        H, members = self.sizes.hidden, self.sizes.members
        if members > 1:
            total = hidden[:, :H]
            for i in range(1, members):
                total = total + hidden[:, i * H : (i + 1) * H]
            hidden = total / float(members)
        if self.modulation is not None:
            hidden = hidden * (1.0 + feature @ self.modulation)
        return hidden @ self.weights + self.bias


class ActorCriticNetwork(AbstractNetwork):
    """The paper's policy, whose critic reads the memory and is part of the policy."""

    @staticmethod
    def inputs(sizes: Sizes) -> int:
        return sizes.observation

    @staticmethod
    def beside(sizes: Sizes) -> Shapes:
        F, H = sizes.feature, sizes.hidden
        each = (sizes.members,) if sizes.members > 1 else ()
        critic: Shapes = {"critic.weights": (*each, H), "critic.bias": each}
        return critic if F == H else critic | {"costate_map": (H, F)}

    @staticmethod
    def fits(policy: dict[str, Any]) -> bool:
        return True

    def _build_form(self, w: Tensors, low: np.ndarray, high: np.ndarray) -> None:
        dtype = self.mean.dtype
        self.low, self.high = low.astype(dtype), high.astype(dtype)
        # The value is the mean over hypotheses, each of which has its own part of the memory.
        self.slope, self.level = (
            w["critic.weights"].reshape(-1) / self.sizes.members,
            float(w["critic.bias"].mean()),
        )

    @property
    def state_size(self) -> int:
        return self.carried

    def act(self, observation: Rows, inputs: Rows, state: Rows) -> Decision:
        carried, hidden, sigma = self.remember(inputs, state)
        action = self.law(sigma, self.low, self.high, self.settings)
        return Decision(action, carried, hidden, hidden @ self.slope + self.level)


class SquashedNetwork(AbstractNetwork):
    """An actor with squashed controls, whose state includes its last action.

    Its critic is used only in training.
    """

    @staticmethod
    def inputs(sizes: Sizes) -> int:
        # The observation, whether there was one, and the previous control.
        return sizes.observation + 1 + sizes.action

    @staticmethod
    def beside(sizes: Sizes) -> Shapes:
        return {"spread.weights": (sizes.hidden, sizes.action), "spread.bias": (sizes.action,)}

    @staticmethod
    def fits(policy: dict[str, Any]) -> bool:
        return bool(policy["ensemble"] == 1 and policy["feature_size"] is None)

    def _build_form(self, w: Tensors, low: np.ndarray, high: np.ndarray) -> None:
        dtype, bounded = self.mean.dtype, np.maximum(np.abs(low), np.abs(high)) < WIDEST_BOUND
        self.low, self.high = (
            np.where(bounded, low, -1.0).astype(dtype),
            np.where(bounded, high, 1.0).astype(dtype),
        )

    @property
    def state_size(self) -> int:
        return self.carried + self.sizes.action

    def act(self, observation: Rows, inputs: Rows, state: Rows) -> Decision:
        # An observation of zeros is a blackout, and stays zero.
        seen = np.maximum.reduce(np.abs(observation), axis=1, keepdims=True) > 0.0
        shown = np.where(seen, inputs, self.zero)
        read = np.concatenate([shown, np.where(seen, self.one, self.zero), state[:, self.carried :]], axis=1)
        carried, hidden, sigma = self.remember(read, state[:, : self.carried])
        control = np.tanh(sigma)
        action = self.low + 0.5 * (control + 1.0) * (self.high - self.low)
        return Decision(action, np.concatenate([carried, control], axis=1), hidden, None)


FORMS: dict[str, type[AbstractNetwork]] = {"ppo": ActorCriticNetwork, "sac": SquashedNetwork}
"""Forms of an acting network by the algorithm in a description: the learner for which each was made first."""


def network_of(
    description: Description, tensors: Tensors, dtype: Any = np.float32, name: str = "The bundle"
) -> AbstractNetwork:
    """Build the policy that a bundle holds."""
    return FORMS[description["algorithm"]](description, tensors, dtype, name)


# ── The policy as an agent ──


class Inputs:
    """Converts a caller's arguments into rows of numbers, or explains why that is impossible."""

    def __init__(self, description: Description, state_size: int) -> None:
        self.layout, self.sizes, self.state_size = (
            [(name, size) for name, size in description["observation"]],
            sizes_of(description),
            state_size,
        )
        # Sensors of the task that were hidden in training.
        self.absent = [(name, size) for name, size in description["sensors"].get("absent", [])]

    def observation(self, given: Any, seen: Any = None) -> tuple[np.ndarray, bool]:
        """Return rows of everything that the policy reads, and whether a single observation was given."""
        rows = self._gather(given) if isinstance(given, Mapping) else array_of(given, "The observation")
        rows = rows[None] if rows.ndim == 0 else rows
        single = rows.ndim == 1
        rows = rows[None] if single else rows
        if rows.ndim != 2 or rows.shape[1] not in (self.sizes.sensors, self.sizes.observation):
            raise MisuseError(
                f"The observation has shape {list(rows[0].shape if single else rows.shape)}, but this policy "
                f"reads {self.describe()}, for one stream or in rows."
            )
        if rows.shape[1] == self.sizes.sensors:
            rows = self._with_mask(rows, seen)
        elif seen is not None:
            raise MisuseError(
                "The observation already ends with its mask, so `seen` cannot be given too. Leave out one of "
                "them."
            )
        require_finite(
            rows,
            "The observation contains NaN or Inf, which would stay in memory forever. Give 0 for a sensor "
            "without a reading.",
        )
        return rows, single

    def describe(self) -> str:
        listed = ", ".join(f"{name} ({size})" for name, size in self.layout)
        beside = f" and {self.sizes.mask} for what was seen, or `seen=`" if self.sizes.mask else ""
        without = ", ".join(f"{name} ({size})" for name, size in self.absent)
        return f"{self.sizes.sensors} numbers: {listed}{beside}" + (
            f", and not {without}, which were hidden in training" if without else ""
        )

    def _gather(self, nested: Mapping[str, Any]) -> np.ndarray:
        names, given = [name for name, _ in self.layout], flattened(nested)
        unread = [name for name, _ in self.absent if name in given]
        if unread and set(names) <= set(given):
            raise MisuseError(
                f"This policy was trained without {', '.join(unread)}. "
                f"Leave that out of the observation, and give only {', '.join(names)}."
            )
        if set(given) != set(names):
            raise MisuseError(
                f"The observation has {', '.join(map(str, given))}, but this policy reads {', '.join(names)}."
            )
        parts = []
        for name, size in self.layout:
            part = np.atleast_1d(array_of(given[name], name).astype(np.float64))
            if part.shape[-1] != size:
                # A single sensor of a batch of streams comes without an axis of its own.
                part = part[..., None] if size == 1 else part
            if part.shape[-1] != size:
                raise MisuseError(
                    f"{name} has shape {list(np.shape(given[name]))}, but this policy reads {size} numbers "
                    f"of it."
                )
            parts.append(part)
        if {part.shape[:-1] for part in parts} == {(), (1,)}:
            # A single sensor of a batch of one looks like that of a single stream.
            parts = [part if part.ndim == 2 else part[None] for part in parts]
        if len({part.shape[:-1] for part in parts}) > 1:
            raise MisuseError("The parts of the observation have different numbers of streams.")
        return np.concatenate(parts, axis=-1)

    def _with_mask(self, rows: np.ndarray, seen: Any) -> np.ndarray:
        if not self.sizes.mask:
            if seen is not None:
                raise MisuseError(
                    "This policy reads no mask. Leave out `seen`, and give 0 for a sensor without a reading, "
                    "as in training."
                )
            return rows
        told = np.ones(1, bool) if seen is None else array_of(seen, "`seen`", "biuf").astype(bool)
        if told.ndim == 1 and rows.shape[0] > 1 and told.shape[0] == rows.shape[0] and self.sizes.mask == 1:
            told = told[:, None]
        try:
            mask = np.broadcast_to(
                told, rows.shape if told.shape[-1:] == rows.shape[1:] else (rows.shape[0], self.sizes.mask)
            )
        except ValueError as error:
            raise MisuseError(
                f"`seen` has shape {list(told.shape)}, but it needs one truth value per stream, or one per "
                f"number."
            ) from error
        if mask.shape[1] != self.sizes.mask:
            mask = np.asarray(mask.any(axis=1, keepdims=True))
        return np.concatenate([rows, mask.astype(rows.dtype)], axis=1)

    def state(self, given: Any, batch: int) -> np.ndarray:
        """Return the state in rows."""
        state = array_of(given, "The state")
        if state.shape not in ((batch, self.state_size), (self.state_size,)) or (
            state.ndim == 1 and batch != 1
        ):
            raise MisuseError(
                f"The state has shape {list(state.shape)}, but {batch} streams need "
                f"{[batch, self.state_size]}. Give None at the start of an episode, and then what the "
                f"previous call returned."
            )
        require_finite(
            state,
            "The state contains NaN or Inf, which would stay in memory forever. Give None to restart the "
            "episode.",
        )
        return state.reshape(batch, self.state_size)

    def is_first(self, given: Any, batch: int) -> np.ndarray | None:
        """Return where episodes start, or None if nowhere."""
        if given is None:
            return None
        first = array_of(given, "is_first", "biuf")
        if first.dtype != bool or first.shape not in ((), (batch,)):
            raise MisuseError(
                f"is_first is {first.dtype}{list(first.shape)}, but it must have one truth value per stream: "
                f"{batch} in all."
            )
        return np.broadcast_to(first, (batch,))


def array_of(given: Any, what: str, kinds: str = "iuf") -> np.ndarray:
    """Convert an argument to an array whose dtype is of one of NumPy's ``kinds``.

    Text is rejected, even numeric.
    """
    try:
        array = np.asarray(given)
    except Exception as error:
        # Lists of different lengths, or an object whose conversion fails.
        raise MisuseError(
            f"{what} cannot be converted to an array of numbers ({_short(str(error))}). Give a vector, or "
            f"rows of equal length, of floating-point numbers."
        ) from error
    if array.dtype.kind not in kinds:
        raise MisuseError(
            f"{what} has dtype {array.dtype}, such as {_short(given)}, but numbers are needed. Give a "
            f"vector, or rows of equal length, of floating-point numbers."
        )
    return array


def require_finite(array: np.ndarray, otherwise: str) -> None:
    """Raise unless every number is finite and fits into float32."""
    # The sum is cheaper to check. It is small enough if all numbers are, unless they are many and large.
    if not abs(float(array.sum())) <= LARGEST_NUMBER and not (np.abs(array) <= LARGEST_NUMBER).all():
        raise MisuseError(otherwise)


def streams_of(batch: Any) -> int:
    """Return the requested number of streams."""
    if not isinstance(batch, int | np.integer) or isinstance(batch, bool) or batch < 1:
        raise MisuseError(
            f"batch is {_short(batch)}, but at least one stream is needed. Give a whole number, such as 1."
        )
    return int(batch)


def flattened(nested: Mapping[Any, Any], outer: str = "") -> dict[str, Any]:
    """Return groups by name. A group of a nested dictionary gets both names, as in training."""
    groups: dict[str, Any] = {}
    for key, part in nested.items():
        name = f"{outer}/{key}" if outer else str(key)
        groups |= flattened(part, name) if isinstance(part, Mapping) else {name: part}
    return groups


def changed_batch(before: int, now: int) -> MisuseError:
    return MisuseError(
        f"{now} observations were given, but the policy has the memory of {before} streams. Call "
        f"reset({now}) to start new ones, or keep the state yourself with predict(observation, state, "
        f"is_first)."
    )


class Policy:
    """A trained policy that acts without noise, including its frozen normaliser."""

    def __init__(self, path: str | os.PathLike[str], dtype: Any = np.float32) -> None:
        self.description, tensors = read_bundle(path)
        self._network = network_of(self.description, tensors, dtype, os.fspath(path))
        self._inputs = Inputs(self.description, self._network.state_size)
        self._last: Decision | None = None
        self._state: np.ndarray | None = None

    @property
    def state_size(self) -> int:
        """Width of the state that is carried from step to step."""
        return self._network.state_size

    @property
    def state(self) -> np.ndarray:
        """The carried state, [B, S]."""
        if self._state is None:
            raise MisuseError("There is no state yet. Call reset() or step(observation) first.")
        return self._state

    @property
    def hidden(self) -> np.ndarray:
        """The part of the memory that plays the co-state, [B, H], after the last step."""
        hidden: np.ndarray = self._decision().hidden
        return hidden

    @property
    def value(self) -> np.ndarray | None:
        """The critic's value, [B], after the last step.

        It is None for soft actor-critic, whose critic is used only in training.
        """
        return self._decision().value

    def reset(self, batch: Any = 1) -> None:
        """Clear the memory: ``batch`` streams start new episodes."""
        self._state, self._last = np.zeros((streams_of(batch), self.state_size), self._network.dtype), None

    def step(self, observation: Any, is_first: Any = None, seen: Any = None) -> np.ndarray:
        """Return the action for one observation [O] or a batch of them [B, O], and update the memory."""
        rows, single = self._inputs.observation(observation, seen)
        if self._state is None:
            self.reset(rows.shape[0])
        if rows.shape[0] != self.state.shape[0]:
            raise changed_batch(self.state.shape[0], rows.shape[0])
        decision = self._decide(rows, self.state, self._inputs.is_first(is_first, rows.shape[0]))
        self._state, self._last = decision.state, decision
        action: np.ndarray = decision.action[0] if single else decision.action
        return action

    def predict(
        self, observation: Any, state: Any = None, is_first: Any = None, seen: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the action and the next state, without keeping a memory. Without a state, episodes start."""
        rows, single = self._inputs.observation(observation, seen)
        batch = rows.shape[0]
        before = (
            np.zeros((batch, self.state_size), self._network.dtype)
            if state is None
            else self._inputs.state(state, batch)
        )
        decision = self._decide(
            rows, before.astype(self._network.dtype, copy=False), self._inputs.is_first(is_first, batch)
        )
        return (decision.action[0], decision.state[0]) if single else (decision.action, decision.state)

    def _decide(self, rows: np.ndarray, state: np.ndarray, is_first: np.ndarray | None) -> Decision:
        return self._network.step(rows.astype(self._network.dtype, copy=False), state, is_first)

    def _decision(self) -> Decision:
        if self._last is None:
            raise MisuseError("No step was taken yet. Call step(observation) first.")
        return self._last
