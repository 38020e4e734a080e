"""Sums, moments and products of arrays, exact where their names say so. They know nothing of MDPs."""
