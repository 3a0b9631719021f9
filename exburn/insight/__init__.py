"""What a trained model knows: its doubt, causes of predictions, explanations."""
