"""Queue and runner of validations and trace readings."""
