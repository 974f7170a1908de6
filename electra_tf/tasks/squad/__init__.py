"""Question answering in the layout of SQuAD."""
