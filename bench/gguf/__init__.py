"""What a model file says about itself, before anything loads it."""
