"""Questions to a trained model: explanations, influence of rows, curvature."""
