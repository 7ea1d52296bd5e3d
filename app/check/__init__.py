"""Check: assertions on traces and regions for CI, their verdict, and its reports."""
