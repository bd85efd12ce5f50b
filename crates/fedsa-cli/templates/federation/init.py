"""A federation with fedsa on Flower."""
