"""Trained policies outside of training: bundles, the policy object, and ONNX, StableHLO and NumPy exports.

This package needs no engine and no learner.
"""
