"""Fetching, reading and splitting of data sets."""
