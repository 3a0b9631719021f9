"""Values, names and checks that everything else is built of."""
