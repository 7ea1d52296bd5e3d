"""The API's objects as an agent reads them: within a bound of tokens, the most useful first."""
