"""What converted scripts do on real GPUs, beside what a user would run instead: `python -m benchmarks.gpu`."""
