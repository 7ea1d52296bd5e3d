"""Texts of a line or two that asked for work without end, or were answered with an error of the server's own."""

from __future__ import annotations

BIG = "x: f32[1073741824]\n"

REFUSED: dict[str, tuple[str, int, str]] = {
    # more results than memory holds, whatever the order of the arguments
    "unsafe_split of 2^40": ("x: f32[1099511627776]\nreturn torch.unsafe_split(x, 1)[0]\n", 2, "gives more than"),
    "dsplit": ("x: f32[2, 2, 1073741824]\nreturn torch.dsplit(x, 1073741824)[0]\n", 2, "gives more than"),
    "chunk by keyword": (BIG + "return torch.chunk(x, dim=0, chunks=1073741824)[0]\n", 2, "gives more than"),
    "split by keyword": (BIG + "return x.split(dim=0, split_size=1)[0]\n", 2, "gives more than"),
    "split without its number": (BIG + "return x.split(dim=0)[0]\n", 2, "do not fit"),
    "sections by a tensor": (BIG + "i: i64[1073741824]\nreturn torch.tensor_split(x, i)[0]\n", 3, "not a tensor"),
    "500 splits": ("x: f32[2048]\nfor i in range(500):\n    y = x.split(1)\nreturn y[0]\n", 3, "2,500 operations"),
    # loops over a number
    "diff n": (BIG + "return torch.diff(x, n=100000000)\n", 2, "rounds"),
    "diff n by position": (BIG + "return x.diff(100000000)\n", 2, "rounds"),
    "diff in a loop": ("x: f32[4096]\nfor i in range(9):\n    y = x.diff(900)\nreturn y\n", 3, "2,500 operations"),
    # a tensor where torch goes through what it is given
    "einsum of two names": (BIG + "return einsum(x, x)\n", 2, "einsum takes an equation"),
    "einsum of one name": (BIG + "return einsum(x, x, x)\n", 2, "einsum takes an equation"),
    "einsum of a number": (BIG + "return einsum(1, x)\n", 2, "einsum takes an equation"),
    "unfold of a tensor": (BIG + "return F.unfold(x, x)\n", 2, "kernel_size is a number, not a tensor"),
    "dims of a tensor": (BIG + "return tensordot(x, x, x)\n", 2, "dims is a number, not a tensor"),
    "aten.add of one": (BIG + "return aten.add(x)\n", 2, r"add: the arguments do not fit \(self, other"),
    "aten.select of one": (BIG + "return aten.select(x)\n", 2, r"do not fit \(self, dim, index\)"),
    "aten.view by a tensor": (BIG + "return aten.view(x, x)\n", 2, "size is whole numbers, not a tensor"),
    "aten.cat of a tensor": (BIG + "return aten.cat(x)\n", 2, "tensors is a list of tensors, not a tensor"),
    "aten.add of a word": (BIG + "return aten.add(x, 'none')\n", 2, "do not fit"),
    "aten.sort by a tensor": (BIG + "return aten.sort(x, x)[0]\n", 2, "dim is a whole number, not a tensor"),
    # small, and seconds of work
    "1400 layer norms": (
        "x: f32[64, 64].requires_grad\nfor i in range(1400):\n    x = layer_norm(x, (64,))\nreturn x\n",
        3,
        "2,500 operations of torch, counted with their backward",
    ),
    "nest": ("x: f32[16]\nl = []\nfor i in range(700):\n    l = [l]\nreturn x\n", 4, "nested more than 16 deep"),
    # sizes of nothing, scalars
    "index of two dimensions": (
        "x: bf16[16, 64]\ni: i32[64, 8]\nreturn x.index_select(0, i)\n",
        3,
        "an index of one dimension",
    ),
    "batch norm of one dimension": (
        "x: bf16[64]\nreturn batch_norm(x, None, None, training=True)\n",
        2,
        "a dimension of channels",
    ),
    "largest of nothing": ("x: f32[0, 64]\nreturn x.max()\n", 2, "no elements"),
    "largest along nothing": ("x: f32[0, 64]\nreturn x.max(0).values\n", 2, "no elements"),
    "a row of nothing": ("x: f32[0, 64]\ni: i64[8]\nreturn embedding(i, x)\n", 3, "no elements"),
    "strides beyond 64 bits": (
        "x: f32[0, 1099511627776, 1099511627776]\nreturn x\n",
        1,
        "cannot be made|more than any",
    ),
}
"""Name -> text, the line that is to blame, and what the message says: refused by `program`."""

REFUSED_WITH_GRADIENTS: dict[str, tuple[str, int, str]] = {
    "no backward of nothing": ("x: bf16[0, 64].requires_grad\nreturn mse_loss(x, x)\n", 2, "in the backward"),
    "changed after it was read": (
        "x: f32[8].requires_grad\ny = x.exp()\nz = y.add_(1)\nreturn z\n",
        4,
        "modified by an inplace operation",
    ),
    "an embedding's sparse gradient": (
        "w: f32[50, 16].requires_grad\ni: i64[64].below(50)\ny = F.embedding(i, w, sparse=True)\nreturn y\n",
        3,
        "sparse=True asks for a sparse gradient",
    ),
    "a bag's sparse gradient of rows that are computed": (
        "w: f32[50, 16].requires_grad\ni: i64[64].below(50)\no: i64[9].offsets(64)\nv = w * 2\n"
        "y = F.embedding_bag(i, v, o[:8], None, 2.0, False, 'sum', True)\nreturn y\n",
        5,
        "sparse=True asks for a sparse gradient",
    ),
    "a gather's sparse gradient": (
        "x: f32[50, 16].requires_grad\ni: i64[8, 16].below(50)\nreturn x.gather(0, i, sparse_grad=True)\n",
        3,
        "sparse_grad=True asks for a sparse gradient",
    ),
}
"""The same of `lower`: no torch differentiates them."""

TAKEN: dict[str, str] = {
    "flatten scalar": "x: f32[()]\ny = x.flatten()\nreturn y\n",
    "einsum dot": "x: f32[1024]\nreturn einsum('i,i->', x, x)\n",
    "inner": "x: f32[1024]\nreturn inner(x, x)\n",
    "zero rows mm": "x: bf16[0, 64]\nw: bf16[64, 128]\nreturn relu(x @ w)\n",
    "scale 0": "x: f32[16, 64]\nreturn softmax(x @ x.mT / 0.0, -1) @ x\n",
    "gumbel 0": "x: f32[16, 64]\nreturn gumbel_softmax(x, 0)\n",
    "index_fill scalar": "x: f32[()].requires_grad\nreturn x.index_fill(0, arange(1), 0)\n",
    "gather scalar": "x: bf16[()]\ni: i32[()]\nreturn gather(x, 0, i)\n",
    "_addmm_activation": "m: f32[64,64]\nreturn aten._addmm_activation(m, m, m)\n",
    "strides of nothing": "x: f32[8, 4].strides(0, 0)\nreturn x + 1\n",
    "einsum by letters": "x: f32[4, 8]\nreturn einsum(x, [0, 1], x, [2, 1], [0, 2])\n",
    "a list of tensors to meshgrid": "x: f32[4]\na, b = meshgrid([x, x], indexing='ij')\nreturn a + b\n",
    "sparse gradients that nobody asks for": "w: f32[50, 16]\ni: i64[64]\nreturn F.embedding(i, w, sparse=True)\n",
    "2040 parts": "x: f32[2040]\ny = x.split(1)\nreturn y[0] + y[2039]\n",
    "sizes one by one": "x: f32[4, 8]\nreturn x.view(2, 16).permute(1, 0).reshape(32) + zeros(32)\n",
    "names of numpy": "x: f32[4, 8]\nreturn torch.sum(input=x, axis=1, keepdims=True)\n",
    "old orders": "x: f32[4, 8]\nreturn torch.add(x, 2, x)\n",
}
"""What torch takes, and the region with it."""
