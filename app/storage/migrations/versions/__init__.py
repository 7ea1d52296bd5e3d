"""The steps in order, each as it was when it was written: none uses app.storage.tables, which goes on changing."""
