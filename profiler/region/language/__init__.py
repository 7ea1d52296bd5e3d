"""The region language: text, syntax, vocabulary, and the program it stands for."""
