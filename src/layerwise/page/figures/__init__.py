"""The pictures of the report as plain data, in the light colours, with no page around them."""
