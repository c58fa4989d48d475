"""Output: tables, Markdown, JSON, the chart, and the comparison with targets."""
