"""How much GPU memory a training needs, and how many GPUs its steps keep busy. No module here imports torch."""
