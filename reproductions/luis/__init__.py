"""[EUBE23] (Luis et al. 2023): Model-based uncertainty in value functions, the tabular experiments."""
