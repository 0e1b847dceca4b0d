/* The floating-point mode of the definition: round to nearest, subnormals kept, no traps.
 *
 * A caller may have set flush-to-zero (compilers do so for whole programs under fast-math flags). */
#ifndef BACKENDS_CPU_FLOAT_MODE_H
#define BACKENDS_CPU_FLOAT_MODE_H

#if defined(__x86_64__)
#include <xmmintrin.h>

typedef unsigned float_mode;

/* Set the mode of this thread; returns what it was. */
static inline float_mode float_mode_enter(void)
{
    unsigned old = _mm_getcsr();

    _mm_setcsr(0x1f80);
    return old;
}

static inline void float_mode_leave(float_mode old)
{
    _mm_setcsr(old);
}
#else
#include <fenv.h>

typedef fenv_t float_mode;

static inline float_mode float_mode_enter(void)
{
    fenv_t old;

    fegetenv(&old);
    fesetenv(FE_DFL_ENV);
    return old;
}

static inline void float_mode_leave(float_mode old)
{
    fesetenv(&old);
}
#endif

#endif
