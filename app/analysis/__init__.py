"""A region's text or a trace -> facts -> advice: what page, API, command line and checks call."""
