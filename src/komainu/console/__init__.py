"""The web pages: templates, scripts and styles, and the way they are served."""
