"""Independent tasks on one process, on many, or on a Dask cluster, with the same results bit by bit."""
