"""The page: HTML, Markdown, tables, numbers and colours that the reports of all kinds share."""
