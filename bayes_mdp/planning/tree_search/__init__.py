"""Bayes-adaptive Monte Carlo planning: a tree of histories, searched by simulation in MDPs drawn from the posterior."""
