/* Sums and conversions of elements, one after the other, in the host's memory. */
#ifndef BASE_ELEMENTS_H
#define BASE_ELEMENTS_H

#include <stddef.h>

#include "base/dtype.h"

/* left[k] += right[k], k < count; integers wrap.  Not bool, f16, bf16.  They do not overlap. */
void elements_add(enum dtype dtype, void *left, const void *right, size_t count);

/* out[k] = in[k]: f16 and bf16 to f32, exact, and f32 to f16 and bf16, rounded to nearest even. */
void elements_widen(enum dtype from, const void *in, size_t count, float *out);
void elements_narrow(enum dtype to, const float *in, size_t count, void *out);

#endif
