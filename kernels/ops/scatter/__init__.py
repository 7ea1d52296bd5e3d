"""Rows that belong together by an index or by offsets."""
