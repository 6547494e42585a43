"""What rivals in RTL share.

- `interface`: what a design's file says of itself.
- `row_max`: the largest score of a row.
- `power_sum`: one pass with a running max, for designs whose exponentials are powers of two (ITA, E2Softmax).
- `two_pass`: the max in a first pass, exponentials and their sum in a second one, around any pipelined lanes.
- `total`: the sum of a slice's words in carry-save form, added to the row's.
- `row_normalization`: one factor per row, found while the row before goes through, and any pipelined lanes that apply it.
- `division`: a constant over a row's sum, a few bits of the quotient per cycle, shared by all lanes.
- `newton`: gemmlowp's reciprocal, by a multiplier that all lanes and several rows share.
- `row_factor`: words times a factor that the lanes of a row share, recoded once.
- `constants`: multiplications and divisions by what is wired, and tables.
- `live`: distances that wait instead of exponentials, up to the first whose output is always 0.
"""

LONGEST = 4096
"""Elements of a row for which every sum has room."""
