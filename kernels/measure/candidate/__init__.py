"""What runs in one candidate's process: inputs, references, correctness, timing."""
