"""One frozen pydantic model a backbone, arm, data variant, protocol and measurement. No torch."""
