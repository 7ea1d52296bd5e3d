"""The JSON API: schemas, responses, one router a noun."""
