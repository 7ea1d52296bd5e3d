"""Charts: the API's objects in, Plotly figures or SVG out. Pure functions."""
