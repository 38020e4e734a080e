"""Data: transitions, their counts, logs of any length folded to what a tabular MDP needs."""
