// Rows through softmax_port, with a sink that stalls at random: prints PASS, or FAIL and where.
// accelerator.py writes lengths.hex, scores.hex and expected.hex and gives ROWS and SLICES.
module softmax_port_tb;
    reg [9:0]  lengths [0:`ROWS-1];
    reg [63:0] scores [0:`SLICES-1];
    reg [63:0] expected [0:`SLICES-1];
    reg clk = 0, rst = 1, in_valid = 0, out_ready = 0;
    reg [9:0] length = 1;
    reg [63:0] in_scores = 0;
    wire in_ready, out_valid, out_last;
    wire [63:0] out_probabilities;
    integer row = 0, sent = 0, of_row = 0, got = 0, wrong = 0, cycles = 0;

    softmax_port port (.clk(clk), .rst(rst), .length(length), .in_valid(in_valid), .in_ready(in_ready),
        .in_scores(in_scores), .out_valid(out_valid), .out_ready(out_ready),
        .out_probabilities(out_probabilities), .out_last(out_last));

    always #5 clk = ~clk;

    initial begin
        $readmemh("lengths.hex", lengths);
        $readmemh("scores.hex", scores);
        $readmemh("expected.hex", expected);
        repeat (4) @(negedge clk);
        rst = 0;
    end

    // Inputs change at falling edges; transfers are counted just before the rising one.
    always @(negedge clk) if (!rst) begin
        in_valid = sent < `SLICES;
        if (in_valid) begin in_scores = scores[sent]; length = lengths[row]; end
        out_ready = $random;
        #4;
        if (in_valid && in_ready) begin
            sent = sent + 1;
            of_row = of_row + 8;
            if (of_row >= length) begin row = row + 1; of_row = 0; end
        end
        if (out_valid && out_ready) begin
            if (out_probabilities !== expected[got]) begin
                wrong = wrong + 1;
                $display("slice %0d: %h, expected %h", got, out_probabilities, expected[got]);
            end
            got = got + 1;
        end
        cycles = cycles + 1;
        if (got == `SLICES || cycles == 100 * `SLICES) begin
            if (got == `SLICES && wrong == 0) $display("PASS: %0d slices of %0d rows", got, `ROWS);
            else $display("FAIL: %0d slices, %0d wrong", got, wrong);
            $finish;
        end
    end
endmodule
