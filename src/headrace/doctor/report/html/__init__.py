"""The report as one page for a browser: nothing is loaded from elsewhere, and nothing in it runs."""
