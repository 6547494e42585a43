// A few threads that sleep until there is a large input, and never outlive a fork.
#pragma once

#include <cstdint>
#include <functional>

namespace smx {

// Calls body(first, last) on ranges that cover 0 ... count, at most `threads` of them at a time, the caller being one.
// Ranges hold at least `grain`. Where the pool is busy with another caller, this one works alone: two
// operators that run at once already use two cores.
void parallel(int64_t count, int64_t grain, int threads, const std::function<void(int64_t, int64_t)>& body);

// The same on the threads of the process's OpenMP, where GNU's is loaded (PyTorch brings it): work between two of PyTorch's
// operators. Its threads spin for milliseconds after each, on the cores that the pool's would need.
void parallel_in_team(int64_t count, int64_t grain, int threads, const std::function<void(int64_t, int64_t)>& body);

// While one lives, the pool's threads look for work instead of falling asleep: for runs of many short calls, between which
// to be woken would take as long as the work.
class Awake {
  public:
    explicit Awake(int threads);
    ~Awake();
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

  private:
    void* pool_;
};

}  // namespace smx
