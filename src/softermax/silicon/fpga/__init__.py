"""The units on FPGAs: Yosys maps them, nextpnr places and routes them. No vendor's tool."""
