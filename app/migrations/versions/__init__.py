"""The steps in order, each as it was when it was written: none uses app.schema, which goes on changing."""
