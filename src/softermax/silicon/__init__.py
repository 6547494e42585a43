"""From RTL to area, timing and energy: cell libraries, synthesis, gate-level simulation, power.

Units throughout: nanoseconds, femtofarads, volts, femtojoules, nanowatts, square micrometres.
``docs/silicon.md`` says what is modelled and what is not.
"""
