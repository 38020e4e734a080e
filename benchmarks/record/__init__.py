"""One run of all speed benchmarks, one file of ratios to the peers, and a comparison of two such files.

`turns` measures one line, `registry` lists the benchmarks, `one_benchmark` runs one of them in a process of its own,
`run_all` runs them all, `stored` is the file, `comparison` compares two. The command is `python -m benchmarks`.
"""
