"""Operations along a sequence: running sums, recurrences, short convolutions."""
