"""What traces come in that is not torch.profiler's JSON: other tools' files, and other ways of packing."""
