/* The functions of NUMERICS: ours, so that no library's version or dispatch changes a bit.
 *
 * All use only IEEE +, -, *, /, sqrt, rounding and, where written, fma; the same bits on every compiler and machine. */
#ifndef RUNTIME_FUNCTIONS_H
#define RUNTIME_FUNCTIONS_H

/* exp in f32: the polynomial that every SIMD path evaluates.  0 below -87; arguments above 88 are taken as 88. */
float numeric_exp(float x);

/* f64, error well below one f32 rounding: for tables made at load. */
double numeric_log(double x);             /* x > 0 */
double numeric_pow(double base, double exponent); /* base > 0 */
double numeric_sin(double x);             /* |x| < 2^30 */
double numeric_cos(double x);

#endif
