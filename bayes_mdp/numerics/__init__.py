"""Sums, moments and products of arrays, how loops and small programs are run. Nothing of MDPs."""
