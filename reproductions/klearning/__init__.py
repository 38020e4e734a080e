"""[KL21] (O'Donoghue 2021): Variational Bayesian reinforcement learning with regret bounds."""
