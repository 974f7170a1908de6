"""Text processing: from strings to ids, records and batches."""
