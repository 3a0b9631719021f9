"""Layers that turn raw data (numbers, words, images) into what a model learns from."""
