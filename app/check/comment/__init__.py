"""A check's Markdown report as the comment on a pull or merge request, posted once and renewed from then on."""
