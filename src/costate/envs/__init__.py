"""Environments: the contract, the tasks, the sensor faults, and the engines that run them."""
