"""Read data of tasks: tables, columns of words, questions, and their splits."""
