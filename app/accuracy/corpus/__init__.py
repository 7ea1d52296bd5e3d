"""The corpus: region programs made by rule, in thirds for fitting, developing and testing blindly."""
