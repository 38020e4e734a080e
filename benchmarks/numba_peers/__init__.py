"""Lines of the record of benchmarks whose peer is a loop in numba: what `td_bma` and `oim` play, in turns."""
