// Elementary functions on sixteen lanes, and sine and cosine for rotary embeddings.
//
// Written here, not taken from libm, so that results depend on the ISA level alone. Maximum errors against float64 are
// stated at each function and tested in tests/unit/ops/test_elementwise.py. NaN goes through. Knows nothing of:
// tensors, threads.
#pragma once

#include "lanes.h"

namespace ov {

// vexp in pieces, so that something else can stand between them: in the order clamp, round, reduce, low, high, end.
struct ExpPieces {
  Lanes x, clamped, n, r, p;

  inline void clamp(Lanes of) {
    x = of;
    clamped = min(set1(89.0f), max(set1(kLow), x));  // no denormals: they are slow
  }
  inline void round() { n = round_nearest(clamped * set1(1.44269504088896341f)); }
  inline void reduce() {
    r = fma(n, set1(-0.693145751953125f), clamped);
    r = fma(n, set1(-1.42860682030941723212e-6f), r);
  }
  inline void low() {
    p = set1(0.000198527617612853646278381f);
    p = fma(p, r, set1(0.00139304355234252151077271f));
    p = fma(p, r, set1(0.00833336077630519866943359f));
  }
  inline void high() {
    p = fma(p, r, set1(0.0416664853692054748535156f));
    p = fma(p, r, set1(0.166666671633720397949219f));
    p = fma(p, r, set1(0.5f));
  }
  inline Lanes end() {
    p = fma(p, r * r, r) + set1(1.0f);
    return select(less(x, set1(kLow)), set1(0.0f), times_power_of_2(p, n));
  }

 private:
  static constexpr float kLow = -87.336544f;
};

// e^x. Relative error <= 2e-7; 0 below -87.33, inf above 88.72. Cody-Waite reduction and a polynomial of degree 6 on
// [-ln2/2, ln2/2] (coefficients of SLEEF's expf).
inline Lanes vexp(Lanes x) {
  ExpPieces e;
  e.clamp(x);
  e.round();
  e.reduce();
  e.low();
  e.high();
  return e.end();
}

// A polynomial of x, coefficients from the highest power down.
template <class... Coefficients>
inline Lanes polynomial(Lanes x, float highest, Coefficients... others) {
  Lanes p = set1(highest);
  ((p = fma(p, x, set1(others))), ...);
  return p;
}

// 2^x; 0 below -149, or -126 where that costs less, inf above 128. Minimax polynomials of what is left of the power's
// integer: relative error <= 3e-7 of degree 5, 8e-5 of degree 3, which is a thirtieth of what rounding to bf16 adds.
template <int Degree>
inline Lanes vexp2(Lanes x) {
  static_assert(Degree == 3 || Degree == 5);
#if defined(__AVX512F__)
  // of [0, 1): the instruction that scales by a power takes its floor itself, and 0 for minus infinity
  const Lanes r{_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
  const Lanes p = Degree == 3 ? polynomial(r, 0.0780245168f, 0.2260671638f, 0.6958335376f, 0.9999252188f)
                              : polynomial(r, 0.001877576608f, 0.008989340253f, 0.05582631792f, 0.240153617f,
                                           0.6931530733f, 0.9999999255f);
  return times_power_of_2(p, x);
#else
  const Lanes n = round_nearest(x);
  const Lanes r = x - n;
  const Lanes p = Degree == 3 ? polynomial(r, 0.05517166493f, 0.2426111219f, 0.6932609862f, 0.9999280736f)
                              : polynomial(r, 0.001327647152f, 0.009675541331f, 0.05550713275f, 0.2402211972f,
                                           0.6931469671f, 1.000000072f);
  return select(less(x, set1(-126.0f)), set1(0.0f), times_power_of_2(p, n));
#endif
}

// tanh x. Error <= 3e-7 relative. Cephes: odd polynomial below 0.625, else from e^2x.
inline Lanes vtanh(Lanes x) {
  const Lanes a = abs(x);
  const Lanes z = x * x;
  Lanes p = set1(-5.70498872745e-3f);
  p = fma(p, z, set1(2.06390887954e-2f));
  p = fma(p, z, set1(-5.37397155531e-2f));
  p = fma(p, z, set1(1.33314422036e-1f));
  p = fma(p, z, set1(-3.33332819422e-1f));
  const Lanes small = fma(p * z, x, x);
  const Lanes big = set1(1.0f) - set1(2.0f) / (vexp(a + a) + set1(1.0f));
  return select(less(a, set1(0.625f)), small, copy_sign(big, x));
}

// x / (1 + e^-x). Relative error <= 5e-7 down to -87, below that 0 within 1e-36.
inline Lanes silu(Lanes x) { return x / (set1(1.0f) + vexp(set1(0.0f) - x)); }

// x * Phi(x), Phi by the complementary error function's Chebyshev fit (Numerical Recipes, erfcc). Error <= 5e-7 of
// max(|x|, 1).
inline Lanes gelu_erf(Lanes x) {
  const Lanes z = abs(x) * set1(0.70710678118654752f);
  const Lanes t = set1(1.0f) / fma(set1(0.5f), z, set1(1.0f));
  Lanes p = set1(0.17087277f);
  p = fma(p, t, set1(-0.82215223f));
  p = fma(p, t, set1(1.48851587f));
  p = fma(p, t, set1(-1.13520398f));
  p = fma(p, t, set1(0.27886807f));
  p = fma(p, t, set1(-0.18628806f));
  p = fma(p, t, set1(0.09678418f));
  p = fma(p, t, set1(0.37409196f));
  p = fma(p, t, set1(1.00002368f));
  p = fma(p, t, set1(-1.26551223f));
  const Lanes half_erfc = set1(0.5f) * t * vexp(p - z * z);
  const Lanes phi = select(less(x, set1(0.0f)), half_erfc, set1(1.0f) - half_erfc);
  return select(less_equal(x, x), x * phi, x);
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x / (1 + e^(-2u)). Error <= 5e-7 of max(|x|, 1).
inline Lanes gelu_tanh(Lanes x) {
  const Lanes u = set1(0.79788456080286536f) * x * fma(set1(0.044715f), x * x, set1(1.0f));
  return x / (set1(1.0f) + vexp(set1(-2.0f) * u));
}

// cos and sin of n arguments, |x| <= 2^20, within half an ulp of f32 (evaluated in f64: three-part Cody-Waite reduction
// by pi/2, then Taylor polynomials on [-pi/4, pi/4]), times scaling.
inline void sin_cos(const float* x, int64_t n, float scaling, float* cos_out, float* sin_out) {
  for (int64_t i = 0; i < n; ++i) {
    const double a = static_cast<double>(x[i]);
    // adding and subtracting 1.5 * 2^52 rounds to an integer
    const double k = (a * 0.63661977236758134308 + 6755399441055744.0) - 6755399441055744.0;
    double r = a - k * 1.57079632673412561417e+00;
    r = r - k * 6.07710050630396597660e-11;
    r = r - k * 2.02226624879595063154e-21;
    const double z = r * r;
    const double s = r + r * z *
                             (-1.66666666666666666667e-1 +
                              z * (8.33333333333333333333e-3 +
                                   z * (-1.98412698412698412698e-4 +
                                        z * (2.75573192239858906526e-6 +
                                             z * (-2.50521083854417187751e-8 + z * 1.60590438368216145994e-10)))));
    const double c =
        1.0 + z * (-0.5 + z * (4.16666666666666666667e-2 +
                               z * (-1.38888888888888888889e-3 +
                                    z * (2.48015873015873015873e-5 +
                                         z * (-2.75573192239858906526e-7 +
                                              z * (2.08767569878680989792e-9 + z * -1.14707455977297247139e-11))))));
    const int64_t quadrant = static_cast<int64_t>(k) & 3;
    const double sine = (quadrant & 1) ? c : s;
    const double cosine = (quadrant & 1) ? s : c;
    sin_out[i] = static_cast<float>((quadrant & 2) ? -sine : sine) * scaling;
    cos_out[i] = static_cast<float>(((quadrant + 1) & 2) ? -cosine : cosine) * scaling;
  }
}

}  // namespace ov
