"""Operations that compute every element from the elements at its own place."""
