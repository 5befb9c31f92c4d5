"""The op table: every op is one place in one of these files."""
