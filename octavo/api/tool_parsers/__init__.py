"""How models write their calls: one definition per format, named as in vLLM."""
