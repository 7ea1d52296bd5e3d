"""Inductor's wrapper, read: a text of Inductor's form with everything in it that counts and that does not."""

from __future__ import annotations

import pytest

from profiler.oracle.inductor.wrapper import read_wrapper

WRAPPER = """
from torch._inductor.async_compile import AsyncCompile
aten = torch.ops.aten
async_compile = AsyncCompile()

# Topologically Sorted Source Nodes: [z, gelu], Original ATen: [aten.add, aten.gelu]
# Source node to ATen node mapping:
#   z => add
triton_poi_fused_add_gelu_0 = async_compile.triton('triton_poi_fused_add_gelu_0', \'\'\'
@triton_heuristics.pointwise(
    size_hints={'x': 8},
)
@triton.jit
def triton_poi_fused_add_gelu_0(in_ptr0):
    pass
\'\'\', device_str='cuda')

# Topologically Sorted Source Nodes: [never], Original ATen: [aten.sum]
triton_red_never_run_1 = async_compile.triton('triton_red_never_run_1', \'\'\'
@triton_heuristics.reduction(
)
def f(): pass
\'\'\', device_str='cuda')

class Runner:
    def call(self, args):
        arg0_1, = args
        args.clear()
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            buf0 = empty_strided_cuda((8, ), (1, ), torch.float32)
            extern_kernels.mm(arg0_1, arg0_1, out=buf0)
            extern_kernels.mm(arg0_1, reinterpret_tensor(arg0_1, (8, ), (1, ), 0), out=buf0)
            triton_poi_fused_add_gelu_0.run(buf0, 8, stream=stream0)
            triton_poi_fused_add_gelu_0.run(buf0, 8, stream=stream0)
            buf1 = torch.ops.aten.topk.default(buf0, 2)
            aten.randint.low_out(-9, 9, [1], out=buf0)
            buf2 = workspace_0[0:8].view(2, 4).sum(dim=0).view([1, 4])
            workspace_0.zero_()
            torch.ops.aten._assert_scalar.default(True, "x")
            assert_size_stride(buf1, (2, ), (1, ), 'torch.ops.aten.topk.default')
        return (buf1, )

def benchmark_compiled_module(args, times=10, repeat=10):
    x = rand_strided((8, ), (1, ), device='cuda:0', dtype=torch.float32).sum()
    extern_kernels.bmm(x, x)
"""


def test_kernels_are_counted_by_their_launches_and_named_by_their_heuristic() -> None:
    written = read_wrapper(WRAPPER, "backward", {"triton_poi_fused_add_gelu_0": 64})
    (kernel,) = written.kernels
    assert (kernel.name, kernel.kind, kernel.calls) == ("triton_poi_fused_add_gelu_0", "pointwise", 2)
    assert (kernel.bytes_moved, kernel.stage, kernel.operations) == (64, "backward", ("aten.add", "aten.gelu"))
    assert kernel.source.startswith("@triton_heuristics.pointwise(")
    assert written.nodes == {"triton_poi_fused_add_gelu_0": ("z", "gelu")}


def test_library_calls_are_counted_and_bookkeeping_is_not() -> None:
    found = {e.name: e.calls for e in read_wrapper(WRAPPER).externs}
    assert found == {"mm": 2, "aten.topk": 1, "aten.randint": 1, "sum": 1, "zero_": 1}


def test_another_form_of_wrapper_is_an_error_and_no_empty_answer() -> None:
    with pytest.raises(SyntaxError):
        read_wrapper("#include <torch/csrc/inductor/aoti_runtime/interface.h>\nint main() {}")
