"""A raw click log becomes a prepared table: ids, numerics, labels, schema, manifest last."""
