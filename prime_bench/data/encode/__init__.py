"""From raw values to the arrays of a prepared table, in bounded memory."""
