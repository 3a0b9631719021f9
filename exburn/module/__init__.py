"""What a layer is: weights, calls, building, graphs."""
