"""Tests of the functions that are copied into scripts; the tests import them."""
