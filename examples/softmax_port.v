// An accelerator's own port around the 8-lane Softermax: a 64-bit bus of int8 scores in, of uint8 probabilities
// out, one row at a time, its length given beforehand. Lanes past the end of the row are masked here.
//
// softermax_top.v comes from: softermax rtl --width 8 --rows 1 --depth 64 --out build/rtl
module softmax_port (
    input  wire        clk,
    input  wire        rst,
    input  wire [9:0]  length,       // scores per row, 1 to 512; stable while a row goes in
    input  wire        in_valid,
    output wire        in_ready,
    input  wire [63:0] in_scores,    // Q(6,2), lane 0 in the lowest byte
    output wire        out_valid,
    input  wire        out_ready,
    output wire [63:0] out_probabilities,  // Q(1,7)
    output wire        out_last
);
    reg  [9:0] done;                 // scores of the row that are in
    wire [9:0] left = length - done;
    wire       first = done == 10'd0;
    wire       last = left <= 10'd8;
    wire [7:0] mask = last ? ~(8'hff << left[3:0]) : 8'hff;

    always @(posedge clk) begin
        if (rst) done <= 10'd0;
        else if (in_valid && in_ready) done <= last ? 10'd0 : done + 10'd8;
    end

    wire [64:0] probabilities;
    assign {out_last, out_probabilities} = probabilities;

    // The datasheet has the fields: x, mask, first, last from the lowest bit up; a single row has no id.
    softermax_top unit (
        .clk(clk),
        .rst(rst),
        .slices__valid(in_valid),
        .slices__ready(in_ready),
        .slices__payload({last, first, mask, in_scores}),
        .probabilities__valid(out_valid),
        .probabilities__ready(out_ready),
        .probabilities__payload(probabilities)
    );
endmodule
