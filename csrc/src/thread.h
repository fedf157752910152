// Threads of the library that are not of the compute pool. Knows nothing of: what they do.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace ov {

// Starts a thread of this name that runs self->run(). It takes no signals: they are for the thread that knows what to do
// about them. 0 or an errno.
template <class T>
int start_thread(pthread_t* thread, const char* name, T* self) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto run = [](void* argument) -> void* {
    static_cast<T*>(argument)->run();
    return nullptr;
  };
  const int code = pthread_create(thread, nullptr, run, self);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (code == 0) pthread_setname_np(*thread, name);
  return code;
}

}  // namespace ov
