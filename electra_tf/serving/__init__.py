"""SavedModel: strings in, scores out."""
