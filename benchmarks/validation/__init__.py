"""How accurate the library is, measured: `python -m benchmarks.validation COMMAND`, from a checkout.

The variance of a value by each method (`measured_accuracy`), the calibration of their intervals (`scorecard`),
agents beside published results (`reference_results`), and the gain of a hierarchical prior (`prior_gain`).
"""
