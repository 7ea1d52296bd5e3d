"""What /learn teaches, each part as data: pure functions of API dictionaries and of what was measured."""
