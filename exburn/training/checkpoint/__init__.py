"""Points of a run that it can be resumed from."""
