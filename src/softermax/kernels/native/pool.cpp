#include "pool.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace smx {
namespace {

// Looks for work before a thread sleeps: to be woken takes longer than many a piece of work, and the next is often near.
constexpr int LOOKS = 4000;
// Looks after which others may have the core for a while.
constexpr int PATIENCE = 1000;

inline void breathe() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

class Pool {
  public:
    void run(int64_t count, int64_t grain, int threads, const std::function<void(int64_t, int64_t)>& body) {
        {
            std::lock_guard<std::mutex> lock(state_);
            while (int(workers_) < threads - 1) {
                std::thread([this, id = workers_] { work(id); }).detach();
                workers_++;
            }
            body_ = &body;
            count_ = count;
            grain_ = grain;
            next_ = 0;
            helpers_ = threads - 1;
            running_ = threads - 1;
            failure_ = nullptr;
            round_++;
        }
        wake_.notify_all();
        take();
        look([this] { return running_ == 0; });
        std::unique_lock<std::mutex> lock(state_);
        done_.wait(lock, [this] { return running_ == 0; });
        body_ = nullptr;
        if (failure_) std::rethrow_exception(failure_);
    }

    std::mutex busy;
    std::atomic<int> awake{0};  // runs that will soon have more work: until they end, nobody sleeps

  private:
    template <class Found>
    void look(const Found& found) {
        for (int i = 1; !found(); i++) {
            if (i % PATIENCE == 0) std::this_thread::yield();
            if (i >= LOOKS && awake == 0) return;
            breathe();
        }
    }

    // Ranges are handed out as they are asked for, so that a core taken by others does not hold up the rest.
    void take() {
        try {
            for (int64_t at = next_.fetch_add(grain_); at < count_; at = next_.fetch_add(grain_))
                (*body_)(at, at + grain_ < count_ ? at + grain_ : count_);
        } catch (...) {
            std::lock_guard<std::mutex> lock(state_);
            failure_ = std::current_exception();
        }
    }

    void work(int id) {
        uint64_t seen = 0;
        for (;;) {
            look([&] { return round_ != seen; });
            {
                std::unique_lock<std::mutex> lock(state_);
                wake_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
                if (id >= helpers_) continue;
            }
            take();
            std::lock_guard<std::mutex> lock(state_);
            if (--running_ == 0) done_.notify_one();
        }
    }

    std::mutex state_;
    std::condition_variable wake_, done_;
    int workers_ = 0, helpers_ = 0;
    std::atomic<int> running_{0};
    std::atomic<uint64_t> round_{0};
    const std::function<void(int64_t, int64_t)>* body_ = nullptr;
    int64_t count_ = 0, grain_ = 1;
    std::atomic<int64_t> next_{0};
    std::exception_ptr failure_;
};

std::atomic<Pool*> current{nullptr};

// A child of fork has none of its parent's threads: it starts a pool of its own.
void forget() { current = nullptr; }

Pool* pool() {
    static const int once = pthread_atfork(nullptr, nullptr, forget);
    (void)once;
    Pool* found = current.load();
    if (found) return found;
    Pool* made = new Pool;  // never freed: its sleeping threads live as long as the process
    if (current.compare_exchange_strong(found, made)) return made;
    delete made;
    return found;
}

}  // namespace

Awake::Awake(int threads) : pool_(threads > 1 ? pool() : nullptr) {
    if (pool_) static_cast<Pool*>(pool_)->awake++;
}

Awake::~Awake() {
    if (pool_) static_cast<Pool*>(pool_)->awake--;
}

void parallel(int64_t count, int64_t grain, int threads, const std::function<void(int64_t, int64_t)>& body) {
    if (count <= 0) return;
    const int64_t ranges = (count + grain - 1) / grain;
    if (threads > ranges) threads = int(ranges);
    if (threads > 1) {
        Pool* shared = pool();
        std::unique_lock<std::mutex> lock(shared->busy, std::try_to_lock);
        if (lock.owns_lock()) {
            shared->run(count, grain, threads, body);
            return;
        }
    }
    body(0, count);
}

namespace {

// A parallel region of GNU's OpenMP: a function, its data, threads, flags.
using Team = void (*)(void (*)(void*), void*, unsigned, unsigned);

Team team() {
    static const Team found = reinterpret_cast<Team>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
    return found;
}

struct TeamWork {
    int64_t count, grain;
    const std::function<void(int64_t, int64_t)>& body;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr failure;

    static void take(void* self) {
        TeamWork& w = *static_cast<TeamWork*>(self);
        try {
            for (int64_t at = w.next.fetch_add(w.grain); at < w.count; at = w.next.fetch_add(w.grain))
                w.body(at, at + w.grain < w.count ? at + w.grain : w.count);
        } catch (...) {
            if (!w.failed.exchange(true)) w.failure = std::current_exception();
        }
    }
};

}  // namespace

void parallel_in_team(int64_t count, int64_t grain, int threads, const std::function<void(int64_t, int64_t)>& body) {
    if (threads <= 1 || count <= grain || !team()) return parallel(count, grain, threads, body);
    TeamWork work{count, grain, body};
    team()(TeamWork::take, &work, unsigned(threads), 0);
    if (work.failure) std::rethrow_exception(work.failure);
}

}  // namespace smx
