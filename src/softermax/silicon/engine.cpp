// A gate-level simulator, 64 independent copies of a design at once: bit r of a net's word is the net's
// value in copy r. Two modes: zero delay (one settled value a cycle), and delays of every arc with
// inertial filtering (a pulse shorter than the gate's delay does not pass). Both count what the power
// model needs: each transition of an output by the input that caused it and the state of all inputs,
// each transition of an input by the state, and the state at the end of each cycle.
//
// Arrays come from simulation.py, which says what they hold.

#include <cstdint>
#include <cstring>
#include <vector>

typedef uint64_t u64;
typedef int64_t i64;

namespace {

const int PINS = 6;     // most state pins of a cell
const int OUTPUTS = 2;  // most outputs of a cell

inline int ones(u64 x) { return __builtin_popcountll(x); }

// A truth table at the words x: Shannon expansion from the first pin up.
inline u64 evaluate(u64 table, const u64* x, int k) {
    if (k == 0) return (table & 1) ? ~0ull : 0ull;
    u64 r[32];
    const u64 leaf[4] = {0ull, ~x[0], x[0], ~0ull};
    int n = 1 << (k - 1);
    for (int j = 0; j < n; j++) r[j] = leaf[(table >> (2 * j)) & 3];
    for (int i = 1; i < k; i++) {
        n >>= 1;
        for (int j = 0; j < n; j++) r[j] = (r[2 * j] & ~x[i]) | (r[2 * j + 1] & x[i]);
    }
    return r[0];
}

// Add the copies in `mask` to the counter of the state they are in: all states at once where many copies
// take part, one copy after the other where few do.
void split_states(u64 mask, const u64* x, int k, uint32_t* counter, int state) {
    if (!mask) return;
    if (k == 0) {
        counter[state] += ones(mask);
        return;
    }
    split_states(mask & x[k - 1], x, k - 1, counter, state | (1 << (k - 1)));
    split_states(mask & ~x[k - 1], x, k - 1, counter, state);
}

inline void count_states(u64 mask, const u64* x, int k, uint32_t* counter) {
    if (ones(mask) > 6) return split_states(mask, x, k, counter, 0);
    for (; mask; mask &= mask - 1) {
        int copy = __builtin_ctzll(mask), state = 0;
        for (int p = 0; p < k; p++) state |= (int)((x[p] >> copy) & 1) << p;
        counter[state]++;
    }
}

struct Entry {
    i64 time;
    u64 mask;
    int pin;
};

}  // namespace

struct Design {
    i64 nets;
    // Combinational cells, each after those that drive it.
    i64 cells;
    const int32_t* pins;       // [cells] number of inputs
    const int32_t* inputs;     // [cells][PINS] nets
    const int32_t* outputs;    // [cells][OUTPUTS] nets, -1 for none
    const u64* tables;         // [cells][OUTPUTS]
    const int32_t* delays;     // [cells][OUTPUTS][PINS][in edge][out edge] ticks; edge 0 rises, 1 falls
    // Flip-flops and clock gates. Their state is data pins, clock, stored value.
    i64 stored;
    const int32_t* data_pins;  // [stored]
    const int32_t* data;       // [stored][PINS] nets
    const u64* next;           // [stored] truth table over the data pins
    const int32_t* domain;     // [stored] clock domain of the clock pin
    const int32_t* gates;      // [stored] domain that a clock gate drives, -1 for a flip-flop
    const int32_t* q;          // [stored][OUTPUTS] nets
    const int32_t* inverted;   // [stored][OUTPUTS]
    const int32_t* q_delays;   // [stored][OUTPUTS][out edge]
    i64 domains;
    const int32_t* domain_net; // [domains]
    // Counters, offsets in them by cell (combinational first, then stored); -1 leaves a cell out.
    const i64* out_offset;     // [output][pin][edge][state]
    const i64* in_offset;      // [pin][state]
    const i64* state_offset;   // [state]
    // Where each net goes: cells (combinational first, then stored) and pins.
    const i64* fan_start;      // [nets + 1]
    const int32_t* fan_cell;
    const int32_t* fan_pin;
};

struct Job {
    i64 cycles, counted_from;
    i64 period;                // ticks; 0 for zero delay
    u64 live;                  // the copies that are counted
    u64 clock;                 // the copies whose clock runs
    i64 in_bits, out_bits;
    const int32_t* in_nets;
    const int32_t* out_nets;
    const u64* in_words;       // [cycles][in_bits]
    u64* out_words;            // [cycles][out_bits], at the end of the cycle
    u64* values;               // [nets], initial values in, final ones out
    u64* toggles;              // [nets][edge]
    uint32_t* counters;
    i64 last_event;            // out: the latest event within a cycle, in ticks
};

namespace {

class Simulator {
  public:
    Simulator(const Design& d, Job& j)
        : d(d), j(j), v(j.values), stored(d.stored, 0), clocked(d.domains, 0), counting(false), high(0) {
        i64 most = 1;
        if (j.period) {
            for (i64 i = 0; i < d.cells * OUTPUTS * PINS * 4; i++) most = d.delays[i] > most ? d.delays[i] : most;
            for (i64 i = 0; i < d.stored * OUTPUTS * 2; i++) most = d.q_delays[i] > most ? d.q_delays[i] : most;
        }
        ring = 1;
        while (ring < most + 2) ring <<= 1;
        wheel.resize(ring);
        pending.resize(d.cells * OUTPUTS + d.stored * OUTPUTS);
        target.assign(d.cells * OUTPUTS, 0);
        changed.assign((d.cells + d.stored) * PINS, 0);
        dirty_flag.assign(d.cells + d.stored, 0);
        delta.assign(d.nets, 0);
        settle();
    }

    void run() {
        for (i64 n = 0; n < j.cycles; n++) {
            counting = n >= j.counted_from;
            const u64* words = j.in_words + n * j.in_bits;
            if (j.period)
                timed_cycle(n, words);
            else
                settled_cycle(words);
            u64* out = j.out_words + n * j.out_bits;
            for (i64 b = 0; b < j.out_bits; b++) out[b] = v[j.out_nets[b]];
            if (counting) count_cycle_end();
        }
    }

  private:
    const Design& d;
    Job& j;
    u64* v;
    std::vector<u64> stored, clocked, target, changed, delta;
    std::vector<uint8_t> dirty_flag;
    std::vector<int32_t> dirty;
    std::vector<std::vector<Entry>> pending;   // by output; then by output of stored cells
    std::vector<std::vector<int32_t>> wheel;   // by time modulo ring: outputs with an entry then
    i64 ring, now = 0, start = 0;
    bool counting;
    u64 high;                                  // all ones while the clock is high

    void gather(i64 cell, u64* x) const {
        const int32_t* nets = d.inputs + cell * PINS;
        for (int p = 0; p < d.pins[cell]; p++) x[p] = v[nets[p]];
    }

    int gather_stored(i64 s, u64* x, u64 clock) const {
        int k = d.data_pins[s];
        for (int p = 0; p < k; p++) x[p] = v[d.data[s * PINS + p]];
        x[k] = clock;
        x[k + 1] = stored[s];
        return k;
    }

    // All combinational nets from the given values, uncounted.
    void settle() {
        for (i64 s = 0; s < d.stored; s++)
            for (int o = 0; o < OUTPUTS; o++)
                if (d.q[s * OUTPUTS + o] >= 0 && d.gates[s] < 0)
                    v[d.q[s * OUTPUTS + o]] = d.inverted[s * OUTPUTS + o] ? ~stored[s] : stored[s];
        for (i64 c = 0; c < d.cells; c++) {
            u64 x[PINS];
            gather(c, x);
            for (int o = 0; o < OUTPUTS; o++) {
                int32_t net = d.outputs[c * OUTPUTS + o];
                if (net < 0) continue;
                v[net] = target[c * OUTPUTS + o] = evaluate(d.tables[c * OUTPUTS + o], x, d.pins[c]);
            }
        }
    }

    void toggle(int32_t net, u64 mask) {
        v[net] ^= mask;
        if (!counting) return;
        j.toggles[2 * net] += ones(mask & v[net] & j.live);
        j.toggles[2 * net + 1] += ones(mask & ~v[net] & j.live);
    }

    void count_output(i64 cell, int o, int pin, u64 mask, u64 value, const u64* x, int k, int pins) {
        i64 offset = d.out_offset[cell];
        if (!counting || offset < 0) return;
        uint32_t* base = j.counters + offset + ((i64)(o * pins + pin) * 2 << k);
        count_states(mask & value & j.live, x, k, base);
        count_states(mask & ~value & j.live, x, k, base + (1 << k));
    }

    void count_input(i64 cell, int pin, u64 mask, const u64* x, int k) {
        i64 offset = d.in_offset[cell];
        if (!counting || offset < 0) return;
        count_states(mask & j.live, x, k, j.counters + offset + ((i64)pin << k));
    }

    // The rising edge: clock gates pass it or not, flip-flops take their data. `launch` receives changes.
    template <class Launch> void rise(Launch launch) {
        std::vector<u64> mask(d.domains, 0);
        mask[0] = j.clock;
        // Clock gates come first and in the order of their nesting.
        for (i64 s = 0; s < d.stored; s++)
            if (d.gates[s] >= 0) mask[d.gates[s]] = mask[d.domain[s]] & stored[s];
        for (i64 i = 0; i < d.domains; i++) {
            clocked[i] = mask[i];
            if (d.domain_net[i] >= 0) toggle(d.domain_net[i], mask[i]);
        }
        high = ~0ull;
        std::vector<u64> taken(d.stored);
        for (i64 s = 0; s < d.stored; s++) {
            u64 x[PINS], m = mask[d.domain[s]];
            int k = gather_stored(s, x, m);
            count_input(d.cells + s, k, m, x, k + 2);
            if (d.gates[s] >= 0) {
                count_output(d.cells + s, 0, k, mask[d.gates[s]], ~0ull, x, k + 2, k + 1);
                taken[s] = stored[s];
            } else {
                taken[s] = (evaluate(d.next[s], x, k) & m) | (stored[s] & ~m);
            }
        }
        for (i64 s = 0; s < d.stored; s++) {
            u64 change = taken[s] ^ stored[s];
            if (!change) continue;
            u64 x[PINS];
            int k = gather_stored(s, x, clocked[d.domain[s]]);
            stored[s] = taken[s];
            for (int o = 0; o < OUTPUTS; o++) {
                if (d.q[s * OUTPUTS + o] < 0) continue;
                u64 value = d.inverted[s * OUTPUTS + o] ? ~stored[s] : stored[s];
                count_output(d.cells + s, o, k, change, value, x, k + 2, k + 1);
                launch(s, o, change, value);
            }
        }
    }

    void fall() {
        high = 0;
        for (i64 s = 0; s < d.stored; s++) {
            u64 x[PINS], m = clocked[d.domain[s]];
            int k = gather_stored(s, x, 0);
            count_input(d.cells + s, k, m, x, k + 2);
            if (d.gates[s] >= 0) count_output(d.cells + s, 0, k, clocked[d.gates[s]], 0, x, k + 2, k + 1);
        }
        for (i64 i = 0; i < d.domains; i++)
            if (d.domain_net[i] >= 0) toggle(d.domain_net[i], clocked[i]);
        for (i64 s = 0; s < d.stored; s++)
            if (d.gates[s] >= 0) open_gate(s);
    }

    // A clock gate's latch follows its enable while the clock is low.
    void open_gate(i64 s) {
        u64 x[PINS];
        gather_stored(s, x, 0);
        stored[s] = evaluate(d.next[s], x, d.data_pins[s]);
    }

    void count_data(i64 s, int pin, u64 mask) {
        u64 x[PINS];
        int k = gather_stored(s, x, clocked[d.domain[s]] & high);
        count_input(d.cells + s, pin, mask, x, k + 2);
    }

    void count_cycle_end() {
        for (i64 c = 0; c < d.cells; c++) {
            if (d.state_offset[c] < 0) continue;
            u64 x[PINS];
            gather(c, x);
            count_states(j.live, x, d.pins[c], j.counters + d.state_offset[c]);
        }
        for (i64 s = 0; s < d.stored; s++) {
            if (d.state_offset[d.cells + s] < 0) continue;
            u64 x[PINS];
            // Half of the cycle with the clock high (where it came), half with it low: both count.
            int k = gather_stored(s, x, clocked[d.domain[s]]);
            count_states(j.live, x, k + 2, j.counters + d.state_offset[d.cells + s]);
            gather_stored(s, x, 0);
            count_states(j.live, x, k + 2, j.counters + d.state_offset[d.cells + s]);
        }
    }

    // Zero delay

    void settled_cycle(const u64* words) {
        std::memset(delta.data(), 0, delta.size() * sizeof(u64));
        rise([this](i64 s, int o, u64 change, u64) {
            int32_t net = d.q[s * OUTPUTS + o];
            toggle(net, change);
            delta[net] = change;
        });
        for (i64 b = 0; b < j.in_bits; b++) {
            u64 change = words[b] ^ v[j.in_nets[b]];
            toggle(j.in_nets[b], change);
            delta[j.in_nets[b]] = change;
        }
        for (i64 c = 0; c < d.cells; c++) settle_cell(c);
        for (i64 s = 0; s < d.stored; s++)
            for (int p = 0; p < d.data_pins[s]; p++) {
                u64 change = delta[d.data[s * PINS + p]];
                if (change) count_data(s, p, change);
            }
        fall();
    }

    void settle_cell(i64 c) {
        int k = d.pins[c];
        const int32_t* nets = d.inputs + c * PINS;
        u64 any = 0;
        for (int p = 0; p < k; p++) any |= delta[nets[p]];
        if (!any) return;
        u64 x[PINS];
        gather(c, x);
        for (int p = 0; p < k; p++)
            if (delta[nets[p]]) count_input(c, p, delta[nets[p]], x, k);
        for (int o = 0; o < OUTPUTS; o++) {
            int32_t net = d.outputs[c * OUTPUTS + o];
            if (net < 0) continue;
            u64 table = d.tables[c * OUTPUTS + o], value = evaluate(table, x, k), change = value ^ v[net];
            if (!change) continue;
            toggle(net, change);
            delta[net] = change;
            if (counting) attribute(c, o, change, value, x, k, table, nets);
        }
    }

    // All inputs change at once: the cause is the first that alone would have changed the output.
    void attribute(i64 c, int o, u64 left, u64 value, u64* x, int k, u64 table, const int32_t* nets) {
        for (int pass = 0; pass < 2 && left; pass++)
            for (int p = 0; p < k && left; p++) {
                u64 m = left & delta[nets[p]];
                if (!m) continue;
                if (pass == 0) {
                    x[p] = ~x[p];
                    m &= evaluate(table, x, k) ^ value;
                    x[p] = ~x[p];
                }
                count_output(c, o, p, m, value, x, k, k);
                left &= ~m;
            }
    }

    // Delays

    void push(i64 output, i64 time, u64 mask, int pin) {
        pending[output].push_back({time, mask, pin});
        wheel[time & (ring - 1)].push_back((int32_t)output);
    }

    void changed_net(int32_t net, u64 mask) {
        for (i64 f = d.fan_start[net]; f < d.fan_start[net + 1]; f++) {
            int32_t cell = d.fan_cell[f];
            changed[(i64)cell * PINS + d.fan_pin[f]] |= mask;
            if (!dirty_flag[cell]) {
                dirty_flag[cell] = 1;
                dirty.push_back(cell);
            }
        }
    }

    void timed_cycle(i64 n, const u64* words) {
        start = now = n * j.period;
        rise([this](i64 s, int o, u64 change, u64 value) {
            const int32_t* delay = d.q_delays + (s * OUTPUTS + o) * 2;
            i64 output = d.cells * OUTPUTS + s * OUTPUTS + o;
            if (change & value) push(output, now + delay[0], change & value, 0);
            if (change & ~value) push(output, now + delay[1], change & ~value, 0);
        });
        for (i64 b = 0; b < j.in_bits; b++) {
            u64 change = words[b] ^ v[j.in_nets[b]];
            if (!change) continue;
            toggle(j.in_nets[b], change);
            changed_net(j.in_nets[b], change);
        }
        for (i64 t = 0; t < j.period; t++) {
            now = start + t;
            if (t == j.period / 2) fall();
            fire();
            if (!dirty.empty()) {
                if (t > j.last_event) j.last_event = t;
                respond();
            }
        }
    }

    void fire() {
        std::vector<int32_t>& slot = wheel[now & (ring - 1)];
        for (size_t i = 0; i < slot.size(); i++) {
            i64 output = slot[i];
            std::vector<Entry>& list = pending[output];
            for (size_t e = 0; e < list.size();) {
                if (list[e].time != now) {
                    e++;
                    continue;
                }
                Entry entry = list[e];
                list[e] = list.back();
                list.pop_back();
                if (entry.mask) release(output, entry);
            }
        }
        slot.clear();
    }

    void release(i64 output, const Entry& entry) {
        i64 owner = output / OUTPUTS;
        int o = output % OUTPUTS;
        int32_t net = owner < d.cells ? d.outputs[output] : d.q[output - d.cells * OUTPUTS];
        toggle(net, entry.mask);
        changed_net(net, entry.mask);
        if (owner < d.cells && counting) {
            u64 x[PINS];
            gather(owner, x);
            count_output(owner, o, entry.pin, entry.mask, v[net], x, d.pins[owner], d.pins[owner]);
        }
    }

    void respond() {
        for (size_t i = 0; i < dirty.size(); i++) {
            i64 cell = dirty[i];
            dirty_flag[cell] = 0;
            u64* change = &changed[cell * PINS];
            if (cell < d.cells)
                respond_cell(cell, change);
            else
                respond_stored(cell - d.cells, change);
            std::memset(change, 0, PINS * sizeof(u64));
        }
        dirty.clear();
    }

    void respond_stored(i64 s, const u64* change) {
        for (int p = 0; p < d.data_pins[s]; p++)
            if (change[p]) count_data(s, p, change[p]);
        if (d.gates[s] >= 0 && !high) open_gate(s);
    }

    void respond_cell(i64 c, const u64* change) {
        int k = d.pins[c];
        u64 x[PINS];
        gather(c, x);
        for (int p = 0; p < k; p++)
            if (change[p]) count_input(c, p, change[p], x, k);
        for (int o = 0; o < OUTPUTS; o++) {
            i64 output = c * OUTPUTS + o;
            int32_t net = d.outputs[output];
            if (net < 0) continue;
            u64 value = evaluate(d.tables[output], x, k), different = value ^ target[output];
            if (!different) continue;
            u64 waiting = target[output] ^ v[net], cancelled = different & waiting;
            target[output] = value;
            if (cancelled)
                for (Entry& entry : pending[output]) entry.mask &= ~cancelled;
            u64 left = different & ~waiting;
            for (int p = 0; p < k && left; p++) {
                u64 m = left & change[p];
                if (!m) continue;
                left &= ~m;
                const int32_t* delay = d.delays + (output * PINS + p) * 4;
                u64 parts[4] = {m & x[p] & value, m & x[p] & ~value, m & ~x[p] & value, m & ~x[p] & ~value};
                for (int q = 0; q < 4; q++)
                    if (parts[q]) push(output, now + delay[q], parts[q], p);
            }
        }
    }
};

}  // namespace

extern "C" void simulate(const Design* design, Job* job) { Simulator(*design, *job).run(); }
