"""Constants of `vector.py` for float32.

The polynomials are minimax fits (Remez exchange in 300 bits, relative error), their coefficients
rounded one after the other, lowest first, the rest refitted each time; the constant comes first.
"""

import numpy as np

# fmt: off

DTYPE = np.float32
SUFFIX = "f32"
MANTISSA_BITS = 23
BIAS = 127
MAGIC = 1.5 * 2.0**23  # adding it leaves a small whole number in the low bits
TINY = 2.0**-12  # below, x - x**3 is x
TINY_SQUARE = 2.0**-26  # below, x + x**2 is x
SMALLEST_NORMAL = 2.0**-126

# A constant beyond one number is a sum of parts: the rounded value, then what is left of it.
LOG2_E, LOG2_E_LOW = 1.442695, 1.925963e-08
LOG10_E, LOG10_E_LOW = 0.4342945, -1.010305e-08
LN2, LN2_REST = 0.6931472, -1.9046542e-09
# The high parts of these have few bits, so that a product with an exponent is exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
LOG10_2_HIGH, LOG10_2_LOW = 0.3010254, 4.605039e-06
SQRT_HALF_BITS = 0x3F3504F3
EXP_MIN, EXP_MAX = -104.0, 88.9  # beyond, exp is 0 or inf
EXP2_MIN, EXP2_MAX = -151.0, 129.0
EXPM1_MIN = 40.0  # below minus this, expm1 is -1
SIGMOID_MAX = 25.0  # beyond, sigmoid is 1
TANH_MAX = 10.0  # beyond, tanh is 1
SINH_MAX = 89.7  # beyond, sinh is inf

TWO_OVER_PI = 0.63661977
PI, PI_LOW = 3.1415927, -8.742278e-08
QUARTER_PI, QUARTER_PI_LOW = 0.7853982, -2.1855694e-08
HALF_PI, HALF_PI_LOW, HALF_PI_LOWER = 1.5707964, -4.371139e-08, -1.7151245e-15
REDUCE_MAX = 2.0**17  # the three parts of pi / 2 reduce angles up to here

SINH = (0.16666667, 0.008333176, 0.00019973084)  # r + r**3 * SINH(r**2), |r| < ln2 / 2
SINH_SHORT = (0.16666518, 0.008369003)  # the same, enough for exp(r)
COSH = (0.041666456, 0.0013935845)  # 1 + r**2 / 2 + r**4 * COSH(r**2)
TANH_SPLIT = 1.0
TANH = (  # tanh(x) = x + x**3 * TANH(x**2), |x| <= TANH_SPLIT
    -0.33333296, 0.13332346, -0.053879846, 0.02148669, -0.0079460805, 0.0023013283, -0.00035844487,
)
# |r| < pi / 4
SIN = (-0.16666667, 0.008333379, -0.00019853006, 2.8312736e-06)  # r + r**3 * SIN(r**2)
COS = (0.041666646, -0.0013887301, 2.4430683e-05)  # 1 - r**2 / 2 + r**4 * COS(r**2)
LOG = (0.6666666, 0.40000972, 0.28498784, 0.24279147)  # 2 atanh(s) = 2 s + s**3 * LOG(s**2)
ASIN = (0.16666754, 0.074952476, 0.045476913, 0.02414672, 0.04222235)  # |x| <= 1 / 2
ATAN = (-0.3333333, 0.19999802, -0.1427913, 0.11009552, -0.08282977, 0.043508414)  # x < 0.4143
ATAN_MAX = 2.0**30  # beyond, atan is pi / 2
RATIO_MAX, RATIO_MIN = 2.0**60, 2.0**30
SQUARE_MAX = 2.0**13  # beyond, x**2 + 1 is x**2
ERF = (  # erf(x) = x + x * ERF(x**2), |x| <= 1
    0.12837917, -0.37612626, 0.11283579, -0.026853347, 0.0051871627, -0.0007997866, 7.8070145e-05,
)
ERF_SPLIT, ERF_CENTER, ERFC_CENTER = 1.22, 0.75, 1.375
ERF_LONG = (  # erf(x) = x + x * ERF_LONG(x**2 - ERF_CENTER), |x| <= ERF_SPLIT
    -0.1001088, -0.24458842, 0.06691891, -0.015131089, 0.0028469511, -0.0004556243,
    6.4044834e-05, -7.67922e-06,
)
ERFC_ROOT = (  # erfc(x) = ERFC_ROOT(x - ERFC_CENTER)**4, ERF_SPLIT <= x <= ERF_MAX
    0.47713926, -0.39207724, 0.05583495, 0.03890504, -0.011151944, -0.002744074, 0.0015608418,
    -0.00019137241,
)
ERFCX_SHIFT, ERFCX_CENTER = 2.0, 0.25
ERFCX = (  # erfc(x) exp(x**2) = y ERFCX(y - CENTER), y = 1 / (x + SHIFT), x >= 1 / 2
    1.0215827, 2.7486427, 4.4715533, 2.3323073, -5.5067043, -6.635885, 12.653602, 13.848634,
    -42.92305, -15.535748, 128.49661,
)
ERFCX_LOWS = -1.7421856e-08, 5.4626068e-08  # what rounding left of its first coefficients
ERFCX_SLOPE = (2.75, 8.94)  # its derivative, roughly
ERF_MAX, ERFC_MAX = 3.95, 10.1  # beyond, erf is 1 and erfc 0
TWO_THIRDS, TWO_THIRDS_LOW = 0.6666667, -1.9868216e-08
LOG_LONG = (0.39999998, 0.28571975, 0.22179443, 0.19563037)  # what follows 2 / 3 in LOG
# a start for the cube root of numbers from 2**-1.5 to 2**1.5
CBRT = (0.44332632, 0.8986451, -0.47337478, 0.15269563, -0.019389564)
CBRT_MASK = -1 << 12
# a guess at 1 / y, and what brings it from 8.6 % to 5.7e-7: z + z h STEP(h), h = 1 - y z
INVERSE_BITS, INVERSE_STEP = 0x7EEA0000, (1.0001393, 0.99030056, 1.1870439)
RSQRT_MORE_STEPS = 1
QUOTIENT_MAX = 2.0**22  # the largest that fmod takes in one step
HALF_LOG_2PI, HALF_LOG_2PI_LOW = 0.9189385, 1.5634177e-08
LOG_PI, LOG_PI_LOW = 1.1447299, 3.317301e-08
LGAMMA_1 = (  # lgamma(1 + d) = d * LGAMMA_1(d), |d| <= 1 / 4
    -0.5772157, 0.82246697, -0.4006857, 0.27059373, -0.20738852, 0.16882195, -0.14360546,
    0.1407866, -0.123438016,
)
LGAMMA_2 = (  # lgamma(2 + d) = d * LGAMMA_2(d), |d| <= 1 / 4
    0.42278433, 0.32246703, -0.0673523, 0.02058082, -0.007385576, 0.0028898388, -0.0011919483,
    0.0005239227, -0.00023361105,
)
STIRLING = (  # the rest of Stirling's formula times x, in 1 / x**2, x >= 8
    0.083333336, -0.0027789788, 0.00086077396,
)
DIGAMMA = (  # (log(x) - 1 / (2 x) - digamma(x)) x**2, in 1 / x**2, x >= 8
    0.083333336, -0.008334072, 0.0039518,
)
DIGAMMA_ROOT = (  # digamma(ROOT + d) = d * DIGAMMA_ROOT(d), |d| <= 1 / 8
    0.9676722, -0.44276318, 0.25849977, -0.16393551, 0.10781776, -0.073116295, 0.049487997,
)
LGAMMA_LOW = 6.6377737e-09
ROOT, ROOT_LOW = 1.4616321, 1.2438149e-08  # where digamma is 0
DIGAMMA_ROOT_LOW = 1.663445e-08
ERFINV_TAIL_START, ERFINV_FAR_START = 5.0, 3.0
ERFINV_TAIL_CENTER, ERFINV_FAR_CENTER = 2.625, 3.5
ERFINV = (  # erfinv(x) = x * ERFINV(w), w = -log(1 - x**2) up to TAIL_START
    0.88622695, 0.23201367, 0.0115492605, -0.002334721, -0.00012893367, 4.7836864e-05,
    9.3666796e-07, -3.6600994e-07, -3.0396163e-07, 9.85248e-08, -1.33581555e-08, 9.207033e-10,
    -2.6719077e-11,
)
ERFINV_TAIL = (  # the same in sqrt(w) - TAIL_CENTER, beyond that
    2.4592228, 0.9897495, 0.02515082, -0.022674229, 0.015183852, -0.0059610717,
    -0.00042664845, 0.0017663188,
)
ERFINV_FAR = (  # the same in sqrt(w) - FAR_CENTER, beyond FAR
    3.3354857, 1.0073688, 0.0032771414, -0.0020633203, 0.0010878708, -0.0006786251,
    0.0004674422, -0.00022880858,
)
ERFINV_LOWS = -2.66232e-08, 1.0080297e-07, 2.0290951e-08  # of their first coefficients
ZETA_TERMS, ZETA_SERIES = 3, 6  # terms of zeta one by one, and of the series for the rest: 4e-9 at most
BESSEL_SPLIT = 8.0
I0_SERIES = (  # I0(x) = 1 + y I0_SERIES(y), y = (x / 2)**2, |x| <= 8
    1.0, 0.25000003, 0.027777718, 0.0017361579, 6.942559e-05, 1.9333622e-06, 3.8760504e-08,
    6.67035e-10, 4.964065e-12, 1.4604439e-13,
)
I1_SERIES = (  # I1(x) = x / 2 (1 + y I1_SERIES(y)), likewise
    0.5, 0.083333336, 0.00694444, 0.00034722596, 1.1572564e-05, 2.759216e-07, 4.8722653e-09,
    7.251776e-11, 5.474013e-13, 1.2594025e-14,
)
I0_FAR = (  # I0(x) exp(-x) sqrt(x) = I0_FAR(16 / x - 1), x >= 8
    0.4021765, 0.0033605557, 0.00013621684, 1.1111525e-05, 1.4767921e-06, 3.6317104e-07,
    1.08298984e-07,
)
I1_FAR = (  # the same of I1
    0.38939846, -0.009749581, -0.00021923667, -1.5003323e-05, -1.8267145e-06, -4.2155543e-07,
    -1.2212499e-07,
)
NDTRI_FAR = (  # -ndtri(p) = sqrt(2) w NDTRI_FAR(1 / w - CENTER), w = sqrt(-log(4 p (1 - p))) > FAR_START
    0.974, -0.19995138, -0.065945454, 0.8645972, -1.4433401, 2.6221793, -7.2698636, 30.449863,
    -124.806816,
)
NDTRI_FAR_CENTER, NDTRI_FAR_START = 0.18, 3.95
NDTR_MAX = 14.5  # beyond, ndtr is 0 at -x
