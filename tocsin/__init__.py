"""Tocsin: a distributed job scheduler on a log."""
