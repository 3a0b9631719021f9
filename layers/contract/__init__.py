"""What families of layers share: bases, layouts, the loop over time."""
