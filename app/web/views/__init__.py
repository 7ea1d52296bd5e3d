"""What a page shows: pure functions of the API's objects."""
