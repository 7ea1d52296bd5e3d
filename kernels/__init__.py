"""What can be launched: candidates, generated kernels, libraries, measurement. Importing it imports no torch."""

from kernels import former_names

former_names.install()
