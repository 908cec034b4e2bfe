"""How fast a pair is here, with which settings, and where its time goes."""
