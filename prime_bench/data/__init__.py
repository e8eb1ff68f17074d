"""A raw click log becomes a prepared table: ids, numerics, labels, schema, and a manifest written last."""
