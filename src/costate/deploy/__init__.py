"""Policies outside of training: the bundle, the policy object, and the same in ONNX, StableHLO and NumPy. Needs no engine and no learner."""
