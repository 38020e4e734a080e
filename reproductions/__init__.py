"""Published experiments, run again beside the published numbers: `python -m reproductions NAME`, from a checkout.

One sub-package for each paper. `reproduce` runs an experiment by its name.
"""
