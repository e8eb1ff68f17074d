"""One frozen pydantic model a backbone, arm, data variant and training protocol. No torch."""
