"""How good the advice is: advice given today, without the Archive, held against what the Archive measured."""
