"""The functions that scripts get, imported."""
