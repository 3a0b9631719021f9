"""Schedules."""
def get(x):
    return x
