"""[BMRL19] (Markou and Rasmussen 2019): Bayesian methods for efficient reinforcement learning in tabular problems."""
