#include <cuda_bf16.h>

// Eight elements a thread: one 128-bit load of z and of mask, one 128-bit store of y.
struct alignas(16) Eight {
    __nv_bfloat162 pair[4];
};

__device__ inline Eight load(const __nv_bfloat16* from) {
    uint4 words = *reinterpret_cast<const uint4*>(from);
    return *reinterpret_cast<Eight*>(&words);
}

__device__ inline float gelu(float v) {
    return 0.5f * v * (1.0f + erff(v * 0.7071067811865476f));
}

extern "C" __global__ void tail(const __nv_bfloat16* z, const __nv_bfloat16* bias, const __nv_bfloat16* mask,
                                __nv_bfloat16* y, long long n, int columns) {
    long long at = 8 * (blockIdx.x * (long long)blockDim.x + threadIdx.x);
    if (at + 8 <= n && columns % 8 == 0) {
        Eight a = load(z + at);
        Eight b = load(bias + at % columns);
        Eight m = load(mask + at);
        Eight out;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float2 u = __bfloat1622float2(a.pair[i]);
            float2 v = __bfloat1622float2(b.pair[i]);
            float2 w = __bfloat1622float2(m.pair[i]);
            out.pair[i] = __floats2bfloat162_rn(gelu(u.x + v.x) * w.x, gelu(u.y + v.y) * w.y);
        }
        *reinterpret_cast<uint4*>(y + at) = *reinterpret_cast<uint4*>(&out);
    } else {
        for (long long i = at; i < n && i < at + 8; ++i) {
            float v = __bfloat162float(z[i]) + __bfloat162float(bias[i % columns]);
            y[i] = __float2bfloat16(gelu(v) * __bfloat162float(mask[i]));
        }
    }
}
