"""HTML report as a single page without external resources or scripts."""
