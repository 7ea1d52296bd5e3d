"""What operations of several rooms share: device functions, and how a tensor becomes rows. No operation is here."""
