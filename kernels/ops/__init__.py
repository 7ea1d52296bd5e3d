"""Operations, one file each, in rooms by what they compute. Read vector_add.py first; kernels/spec.py says the rest."""
