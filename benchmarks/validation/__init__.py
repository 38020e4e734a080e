"""How accurate the library is, measured: `python -m benchmarks.validation COMMAND`, from a checkout.

What each method says of the variance of a value (`measured_accuracy`), what their intervals are worth (`scorecard`),
agents beside published results (`reference_results`), and the gain of a hierarchical prior (`prior_gain`).
"""
