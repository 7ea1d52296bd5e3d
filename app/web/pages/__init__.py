"""Pages for people: one router a page, and what they share."""
