"""How much GPU memory a training needs, and how many GPUs its steps keep busy. Nothing of it imports torch."""
