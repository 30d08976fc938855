"""Compare converted scripts on real GPUs with what a user would run instead: `python -m benchmarks.gpu`."""
