"""[VALDETTARO24] (Valdettaro and Faisal 2024): Posterior value optimisation in finite-state MDPs."""
