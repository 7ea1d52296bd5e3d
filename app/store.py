"""Store: traces, regions, jobs and validations."""
