"""Examples -> features -> head -> score, trained by Keras."""
