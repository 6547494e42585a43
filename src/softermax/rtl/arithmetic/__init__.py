"""Adders, multipliers, shifters and rounding that units, baseline and processing element share."""
